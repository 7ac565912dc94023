"""grid_sample: a tensor read at positions that another tensor gives, by nearest, linear or cubic interpolation.

Arguments: x (N, C, d1, ..., dr) and grid (N, o1, ..., or, r), whose last axis counts the dimensions of x from the last to the
first; -1 and 1 are the ends of a dimension. Attributes: mode (nearest, linear, cubic), padding (zeros, border, reflection),
align_corners (1: the ends are the centres of the outermost elements, 0: their outer edges). Positions are computed in f32, or
f64 where x or grid is f64. Source: ONNX GridSample; cubic weights by Keys (1981) with a = -0.75. A cubic window that crosses a
border reads the outermost element in place of what is missing, as PyTorch and ONNX Runtime do; the position itself stays
(ONNX's Python reference moves it onto the border first).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import DType, f32, f64, i64
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.op.cubic import window_weights
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import (
    Expr,
    cast,
    const,
    ge,
    gt,
    logical_and,
    logical_or,
    lt,
    maximum,
    minimum,
    select,
)
from everport.tir.intrin import call

A = -0.75
REACH = 4  # no window reaches further beyond a tensor's end


def _infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    x, grid = infos
    if x.rank < 3 or grid.rank != x.rank:
        raise CompileError(f"grid_sample: a grid of rank {grid.rank} on a tensor of rank {x.rank}")
    if not grid.dtype.is_float:
        raise CompileError(f"grid_sample: the positions must be floats, not {grid.dtype}")
    batch = ctx.unify(x.shape[0], grid.shape[0], "grid_sample: the batches of tensor and grid")
    ctx.unify(grid.shape[-1], const(x.rank - 2), "grid_sample: the last axis of the grid, the number of dimensions")
    return TensorInfo((batch, x.shape[1], *grid.shape[1:-1]), x.dtype)


class _Axis:
    """Places and weights along one dimension of x, as TIR."""

    def __init__(self, attrs: Mapping[str, Any], extent: Expr, position: Expr, t: DType) -> None:
        self.mode, self.padding, self.extent, self.t = attrs["mode"], attrs["padding"], extent, t
        count = cast(extent, t)
        one, two, half = (const(v, t) for v in (1.0, 2.0, 0.5))
        if attrs["align_corners"]:
            self.low, self.high = const(0.0, t), count - one
            at = (position + one) / two * self.high
        else:
            self.low, self.high = -half, count - half
            at = ((position + one) * count - one) / two
        if self.mode == "nearest":
            at = call("round", at)
        beyond = logical_or(lt(at, self.low), gt(at, self.high))
        if self.padding == "border" and self.mode != "cubic":
            at = select(beyond, maximum(minimum(at, count - one), const(0.0, t)), at)
        elif self.padding == "reflection":
            at = select(beyond, self.reflected(at), at)
        else:
            at = maximum(minimum(at, count + const(float(REACH), t)), const(-float(REACH), t))
        self.at = at

    def reflected(self, v: Expr) -> Expr:
        """`v` folded at the borders until it lies between them."""
        span = self.high - self.low
        zero, two = const(0.0, self.t), const(2.0, self.t)
        distance = select(lt(v, self.low), self.low - v, v - self.high)
        folds = call("floor", distance / span)
        rest = distance - folds * span
        odd = folds - call("floor", folds / two) * two
        # After an even number of folds it comes back from the border that it crossed, after an odd one from the other.
        from_low = select(lt(v, self.low), gt(const(0.5, self.t), odd), gt(odd, const(0.5, self.t)))
        folded = select(from_low, self.low + rest, self.high - rest)
        return select(gt(span, zero), folded, self.low)

    def window(self) -> list[tuple[Expr, Expr, Expr | None]]:
        """For each element read: its index, whether it is there, and its weight (None: 1)."""
        low = call("floor", self.at)
        first = cast(low, i64)
        if self.mode == "nearest":
            return [(*self.place(first), None)]
        u, one = self.at - low, const(1.0, self.t)
        if self.mode == "linear":
            return [(*self.place(first), one - u), (*self.place(first + 1), u)]
        return [(*self.place(first + (k - 1)), w) for k, w in enumerate(window_weights(u, A))]

    def place(self, index: Expr) -> tuple[Expr, Expr]:
        if self.padding == "zeros":
            return index, logical_and(ge(index, 0), lt(index, self.extent))
        if self.padding == "reflection":
            at = cast(index, self.t)
            beyond = logical_or(lt(at, self.low), gt(at, self.high))
            index = select(beyond, cast(call("round", self.reflected(at)), i64), index)
        return maximum(minimum(index, self.extent - 1), 0), gt(self.extent, 0)


def _lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, grid = buffers
    assert isinstance(info, TensorInfo)
    t = f64 if f64 in (x.dtype, grid.dtype) else f32
    rank = len(x.shape) - 2

    def element(*i: Expr) -> Expr:
        n, c, *o = i
        axes = [_Axis(attrs, x.shape[2 + k], cast(grid[(n, *o, const(rank - 1 - k))], t), t) for k in range(rank)]
        total: Expr | None = None
        for corner in itertools.product(*(a.window() for a in axes)):
            there = logical_and(*(inside for _, inside, _ in corner))
            value = select(there, x[(n, c, *(p for p, _, _ in corner))], const(0, x.dtype))
            weights = [w for _, _, w in corner if w is not None]
            if not weights:
                return value
            part = cast(value, t)
            for w in weights:
                part = part * w
            total = part if total is None else total + part
        assert total is not None
        return cast(total, x.dtype)

    return b.compute("grid_sample", info.shape, x.dtype, element)


def _numpy(attrs: Mapping[str, Any], x: np.ndarray, grid: np.ndarray) -> np.ndarray:
    t = np.dtype(np.float64 if np.float64 in (x.dtype, grid.dtype) else np.float32)
    rank, mode, padding = x.ndim - 2, attrs["mode"], attrs["padding"]
    batch = np.arange(x.shape[0]).reshape(-1, *(1,) * rank)
    windows = []
    for k in range(rank):
        d, one = x.shape[2 + k], t.type(1)
        low, high = (t.type(0), t.type(d - 1)) if attrs["align_corners"] else (t.type(-0.5), t.type(d - 0.5))
        v = grid[..., rank - 1 - k].astype(t)
        at = (v + one) / 2 * t.type(d - 1) if attrs["align_corners"] else ((v + one) * t.type(d) - one) / 2
        at = np.rint(at) if mode == "nearest" else at
        beyond = (at < low) | (at > high)
        if padding == "border" and mode != "cubic":
            at = np.where(beyond, np.clip(at, 0, d - 1), at)
        elif padding == "reflection":
            at = np.where(beyond, _np_reflected(at, low, high), at)
        else:
            at = np.clip(at, -REACH, d + REACH)
        floor = np.floor(at)
        u = (at - floor).astype(t)
        offsets, weights = {
            "nearest": ((0,), (None,)),
            "linear": ((0, 1), (one - u, u)),
            "cubic": ((-1, 0, 1, 2), window_weights(u, A)),
        }[mode]
        first = np.nan_to_num(floor).astype(np.int64)
        windows.append([(*_np_place(first + o, d, padding, low, high), w) for o, w in zip(offsets, weights, strict=True)])
    total: Any = 0
    channels_last = np.moveaxis(x, 1, -1)
    for corner in itertools.product(*windows):
        there = np.ones(grid.shape[:-1], bool)
        part: Any = t.type(1)
        for _, inside, w in corner:
            there = there & inside
            part = part if w is None else part * w
        read = channels_last[(batch, *(p for p, _, _ in corner))] if x.size else np.zeros((*grid.shape[:-1], x.shape[1]), x.dtype)
        value = np.where(there[..., None], read, np.zeros((), x.dtype))
        if mode == "nearest":
            return np.moveaxis(value, -1, 1)
        total = total + value.astype(t) * np.asarray(part)[..., None]
    return np.moveaxis(total, -1, 1).astype(x.dtype)


def _np_reflected(v: np.ndarray, low: Any, high: Any) -> np.ndarray:
    span = high - low
    if span <= 0:
        return np.full_like(v, low)
    rest = np.mod(np.where(v < low, low - v, v - high), 2 * span)
    back = np.where(rest <= span, rest, 2 * span - rest)
    return np.where(v < low, low + back, high - back)


def _np_place(index: np.ndarray, d: int, padding: str, low: Any, high: Any) -> tuple[np.ndarray, Any]:
    if padding == "zeros":
        return np.clip(index, 0, max(d - 1, 0)), (index >= 0) & (index < d)
    if padding == "reflection":
        at = index.astype(np.asarray(low).dtype)
        folded = np.nan_to_num(np.rint(_np_reflected(at, low, high))).astype(np.int64)
        index = np.where((at < low) | (at > high), folded, index)
    return np.clip(index, 0, max(d - 1, 0)), d > 0


GRID_SAMPLE_OPS: dict[str, OpDef] = table(OpDef("grid_sample", _infer, _numpy, _lower, FusionKind.OPAQUE))
