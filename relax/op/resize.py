"""resize: resampling by nearest, linear or cubic interpolation.

Attributes: out (extents), scales (a float an axis: output over input, used for coordinates), mode, coordinate
(half_pixel, half_pixel_symmetric, pytorch_half_pixel, align_corners, asymmetric, tf_crop_and_resize), nearest
(round_prefer_floor, round_prefer_ceil, floor, ceil), cubic_a, exclude_outside, extrapolation, roi (starts then ends, or ()),
antialias is not supported. Coordinates are computed in f32, as ONNX Runtime does.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import f32, from_numpy, i64
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.op.cubic import window_weights
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import (
    Const,
    Expr,
    as_int,
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
from everport.tir.interp import call as interpret
from everport.tir.intrin import call


def _f(value: float) -> Expr:
    return const(float(value), f32)


def _infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(tuple(attrs["out"]), infos[0].dtype)


class _Axis:
    """The input coordinate of an output index along one axis, as TIR."""

    def __init__(self, attrs: Mapping[str, Any], axis: int, extent: Expr, out: Expr) -> None:
        self.attrs = attrs
        self.axis = axis
        self.extent = extent
        self.out = out
        scale = attrs["scales"][axis]
        self.scale = None if scale == "ratio" else scale

    @property
    def identity(self) -> bool:
        same = self.extent is self.out or (as_int(self.extent) is not None and as_int(self.extent) == as_int(self.out))
        return same and self.scale in (1, 1.0, None) and self.attrs["coordinate"] != "tf_crop_and_resize"

    def scale_expr(self) -> Expr:
        if self.scale is None:
            return cast(self.out, f32) / cast(self.extent, f32)
        return _f(self.scale)

    def coordinate(self, v: Expr) -> Expr:
        x, how, scale = cast(v, f32), self.attrs["coordinate"], self.scale_expr()
        extent, out = cast(self.extent, f32), cast(self.out, f32)
        half, one = _f(0.5), _f(1.0)
        if how == "asymmetric":
            return x / scale
        if how == "half_pixel":
            return (x + half) / scale - half
        if how == "pytorch_half_pixel":
            return select(gt(self.out, 1), (x + half) / scale - half, _f(0.0))
        if how == "align_corners":
            return select(gt(self.out, 1), x * (extent - one) / (out - one), _f(0.0))
        if how == "half_pixel_symmetric":
            adjust = out / (scale * extent)
            center = extent / _f(2.0)
            return center * (one - adjust) + (x + half) / scale - half
        starts, ends = self.attrs["roi"][: len(self.attrs["out"])], self.attrs["roi"][len(self.attrs["out"]) :]
        start, end = _f(starts[self.axis]), _f(ends[self.axis])
        inner = start * (extent - one) + x * (end - start) * (extent - one) / (out - one)
        return select(gt(self.out, 1), inner, half * (start + end) * (extent - one))

    def nearest(self, v: Expr) -> Expr:
        """The input index; integer factors without floats."""
        factor = as_int(self.out) is not None and as_int(self.extent) and as_int(self.out) % as_int(self.extent) == 0  # type: ignore[operator]
        how, rounding = self.attrs["coordinate"], self.attrs["nearest"]
        if factor and self.scale in (None, as_int(self.out) // as_int(self.extent)):  # type: ignore[operator]
            if (how == "asymmetric" and rounding == "floor") or (how == "half_pixel" and rounding == "round_prefer_floor"):
                return v // (as_int(self.out) // as_int(self.extent))  # type: ignore[operator]
        x = self.coordinate(v)
        half = _f(0.5)
        rounded = {
            "floor": lambda: call("floor", x),
            "ceil": lambda: call("ceil", x),
            "round_prefer_floor": lambda: call("ceil", x - half),
            "round_prefer_ceil": lambda: call("floor", x + half),
        }[rounding]()
        return self.clamped(cast(rounded, i64))

    def clamped(self, index: Expr) -> Expr:
        return maximum(minimum(index, self.extent - 1), 0)

    def linear(self, v: Expr) -> list[tuple[Expr, Expr]]:
        x = minimum(maximum(self.coordinate(v), _f(0.0)), cast(self.extent - 1, f32))
        low = call("floor", x)
        weight = x - low
        index = cast(low, i64)
        return [(self.clamped(index), _f(1.0) - weight), (self.clamped(index + 1), weight)]

    def cubic(self, v: Expr) -> list[tuple[Expr, Expr]]:
        x, a = self.coordinate(v), self.attrs["cubic_a"]
        low = call("floor", x)
        t = x - low
        index = cast(low, i64)
        weights = list(window_weights(t, a))
        places = [index + k for k in (-1, 0, 1, 2)]
        if self.attrs["exclude_outside"]:
            weights = [
                select(logical_and(ge(p, 0), lt(p, self.extent)), w, _f(0.0)) for p, w in zip(places, weights, strict=True)
            ]
            total = weights[0] + weights[1] + weights[2] + weights[3]
            weights = [w / total for w in weights]
        return [(self.clamped(p), w) for p, w in zip(places, weights, strict=True)]


def _lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)
    axes = [_Axis(attrs, k, d, o) for k, (d, o) in enumerate(zip(x.shape, info.shape, strict=True))]

    def outside(i: Sequence[Expr]) -> Expr | None:
        if attrs["coordinate"] != "tf_crop_and_resize":
            return None
        found = []
        for axis, v in zip(axes, i, strict=True):
            at = axis.coordinate(v)
            found += [lt(at, _f(0.0)), gt(at, cast(axis.extent - 1, f32))]
        return logical_or(*found)

    def element(*i: Expr) -> Expr:
        if attrs["mode"] == "nearest":
            value = x[tuple(v if a.identity else a.nearest(v) for a, v in zip(axes, i, strict=True))]
        else:
            terms = [
                [(v, None)] if a.identity else (a.linear(v) if attrs["mode"] == "linear" else a.cubic(v))
                for a, v in zip(axes, i, strict=True)
            ]
            total: Expr | None = None
            for corner in itertools.product(*terms):
                part = cast(x[tuple(p for p, _ in corner)], f32)
                for _, w in corner:
                    part = part if w is None else part * w
                total = part if total is None else total + part
            assert total is not None
            if x.dtype.is_int:
                total = call("round", total)
            value = cast(total, x.dtype)
        out = outside(i)
        return value if out is None else select(out, const(attrs["extrapolation"], x.dtype), value)

    return b.compute("resize", info.shape, x.dtype, element)


def _numpy(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    """The lowering itself, interpreted: resampling has one definition."""
    from_shape = attrs["out_shape"]
    b = FuncBuilder("resize")
    kind = TensorInfo(tuple(Const(d) for d in from_shape), from_numpy(x.dtype))
    source = b.input("x", x.shape, kind.dtype)
    b.output(_lower(b, [source], {**attrs, "out": from_shape}, kind))
    return interpret(b.finish(), [x])[0]


RESIZE_OPS: dict[str, OpDef] = table(OpDef("resize", _infer, _numpy, _lower, FusionKind.INJECTIVE))

