"""Operators that move elements without computing on them: each output element is one input element (or a fill value)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import dtype
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, expect_dtypes, table
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, as_int, cast, const, eq, ge, logical_and, lt, maximum, minimum, select


def flat_index(index: Sequence[Expr], shape: Sequence[Expr]) -> Expr:
    """Row-major position of an index."""
    flat: Expr = Const(0)
    for i, d in zip(index, shape, strict=True):
        flat = flat * d + i
    return flat


def unflatten(flat: Expr, shape: Sequence[Expr]) -> tuple[Expr, ...]:
    """The index of a row-major position."""
    result: list[Expr] = []
    for k, d in enumerate(reversed(shape)):
        last = k == len(shape) - 1
        result.append(flat if last else flat % d)
        flat = flat if last else flat // d
    return tuple(reversed(result))


def _infer_reshape(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    target = TensorInfo(tuple(attrs["shape"]), infos[0].dtype)
    a, b = ctx.simplify(infos[0].numel()), ctx.simplify(target.numel())
    ctx.unify(a, b, f"reshape of {infos[0]} to {target} changes the number of elements")
    return target


def _lower_reshape(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)
    return b.compute("reshape", info.shape, x.dtype, lambda *i: x[unflatten(flat_index(i, info.shape), x.shape)])


def _infer_transpose(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    axes = attrs["axes"]
    if sorted(axes) != list(range(infos[0].rank)):
        raise CompileError(f"transpose axes {list(axes)} are no permutation of the {infos[0].rank} axes")
    return TensorInfo(tuple(infos[0].shape[a] for a in axes), infos[0].dtype)


def _lower_transpose(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, axes = buffers[0], attrs["axes"]
    inverse = [axes.index(k) for k in range(len(axes))]
    return b.compute("transpose", [x.shape[a] for a in axes], x.dtype, lambda *i: x[tuple(i[k] for k in inverse)])


def _infer_broadcast(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(ctx.broadcast(infos[0].shape, attrs["shape"], "broadcast_to: the shapes do not fit"), infos[0].dtype)


def _lower_broadcast(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)

    def element(*i: Expr) -> Expr:
        tail = i[len(i) - x.rank :]
        return x[tuple(Const(0) if as_int(s) == 1 else v for v, s in zip(tail, x.shape, strict=True))]

    return b.compute("broadcast", info.shape, x.dtype, element)


def _infer_concat(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    axis, t = attrs["axis"], expect_dtypes(infos, "concat")
    shape = list(infos[0].shape)
    for info in infos[1:]:
        if info.rank != len(shape):
            raise CompileError(f"concat: the ranks differ ({len(shape)} and {info.rank})")
        for k, d in enumerate(info.shape):
            shape[k] = ctx.simplify(shape[k] + d) if k == axis else ctx.unify(shape[k], d, f"concat: axis {k}")
    return TensorInfo(tuple(shape), t)


def _lower_concat(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    axis = attrs["axis"]
    assert isinstance(info, TensorInfo)

    def element(*i: Expr) -> Expr:
        start: Expr = Const(0)
        parts = []
        for x in buffers:
            inner = tuple(v - start if k == axis else v for k, v in enumerate(i))
            start = start + x.shape[axis]
            parts.append((start, x[inner]))
        result: Expr = parts[-1][1]
        for end, value in reversed(parts[:-1]):
            result = select(lt(i[axis], end), value, result)
        return result

    return b.compute("concat", info.shape, info.dtype, element)


def _slice_extent(ctx: InferContext, d: Expr, start: Expr, stop: Expr, step: int) -> Expr:
    length = stop - start if step > 0 else start - stop
    return ctx.simplify((length + (abs(step) - 1)) // abs(step))


def _infer_slice(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    shape = [
        _slice_extent(ctx, d, const(s), const(e), st)
        for d, s, e, st in zip(infos[0].shape, attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    ]
    return TensorInfo(tuple(shape), infos[0].dtype)


def _numpy_slice(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    index = [
        slice(s, None if e < 0 else e, st) for s, e, st in zip(attrs["starts"], attrs["stops"], attrs["steps"], strict=True)
    ]
    return np.ascontiguousarray(x[tuple(index)]).reshape(attrs["out_shape"])


def _lower_slice(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)
    starts, steps = [const(s) for s in attrs["starts"]], attrs["steps"]
    return b.compute(
        "slice", info.shape, x.dtype, lambda *i: x[tuple(s + v * st for v, s, st in zip(i, starts, steps, strict=True))]
    )


def _infer_pad(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    before, after = attrs["before"], attrs["after"]
    shape = [ctx.simplify(d + p + q) for d, p, q in zip(infos[0].shape, before, after, strict=True)]
    return TensorInfo(tuple(shape), infos[0].dtype)


def _numpy_pad(attrs: Mapping[str, Any], x: np.ndarray, *value: np.ndarray) -> np.ndarray:
    # Negative pads crop: pad first with what is positive, then cut.
    widths = [(max(p, 0), max(q, 0)) for p, q in zip(attrs["before"], attrs["after"], strict=True)]
    mode = {"constant": "constant", "edge": "edge", "reflect": "reflect", "wrap": "wrap"}[attrs["mode"]]
    options = {"constant_values": value[0].reshape(-1)[0] if value else 0} if mode == "constant" else {}
    y = np.pad(x, widths, mode, **options)
    cut = [slice(max(-p, 0), y.shape[k] - max(-q, 0)) for k, (p, q) in enumerate(zip(attrs["before"], attrs["after"], strict=True))]
    return np.ascontiguousarray(y[tuple(cut)])


def _lower_pad(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, mode = buffers[0], attrs["mode"]
    assert isinstance(info, TensorInfo)

    def element(*i: Expr) -> Expr:
        places, inside = [], []
        for v, p, q, d in zip(i, attrs["before"], attrs["after"], x.shape, strict=True):
            place = v - const(p)
            fixed = as_int(p) == 0 and as_int(q) == 0
            if not fixed and mode == "edge":
                place = clamp(place, Const(0), d - 1)
            elif not fixed and mode == "reflect":
                period = maximum(d * 2 - 2, 1)
                folded = place % period
                place = select(lt(folded, d), folded, period - folded)
            elif not fixed and mode == "wrap":
                place = place % d
            elif not fixed:
                if not (as_int(p) is not None and as_int(p) <= 0):  # type: ignore[operator]
                    inside.append(ge(place, 0))
                if not (as_int(q) is not None and as_int(q) <= 0):  # type: ignore[operator]
                    inside.append(lt(place, d))
            places.append(place)
        value = x[tuple(places)]
        if not inside:
            return value
        fill = buffers[1][tuple(Const(0) for _ in buffers[1].shape)] if len(buffers) > 1 else const(0, x.dtype)
        return select(logical_and(*inside), value, fill)

    return b.compute("pad", info.shape, x.dtype, element)


def clamp(v: Expr, lo: Expr, hi: Expr) -> Expr:
    return maximum(minimum(v, hi), lo)


def _infer_tile(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    shape = tuple(ctx.simplify(d * const(r)) for d, r in zip(infos[0].shape, attrs["repeats"], strict=True))
    return TensorInfo(shape, infos[0].dtype)


def _lower_tile(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)
    return b.compute("tile", info.shape, x.dtype, lambda *i: x[tuple(v % d for v, d in zip(i, x.shape, strict=True))])


def _infer_iota(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo((attrs["count"],), dtype(attrs["dtype"]))


def _lower_iota(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    assert isinstance(info, TensorInfo)
    t = info.dtype
    start, step = (const(attrs[k], t) if not isinstance(attrs[k], Expr) else cast(attrs[k], t) for k in ("start", "step"))
    return b.compute("range", info.shape, t, lambda i: start + cast(i, t) * step)


def _numpy_iota(attrs: Mapping[str, Any]) -> np.ndarray:
    t = attrs["out_dtype"]
    return (np.asarray(attrs["start"], t) + np.arange(attrs["out_shape"][0]).astype(t) * np.asarray(attrs["step"], t)).astype(t)


def _infer_full(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(tuple(attrs["shape"]), infos[0].dtype)


def _lower_full(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    value = buffers[0]
    assert isinstance(info, TensorInfo)
    return b.compute("full", info.shape, info.dtype, lambda *_: value[tuple(Const(0) for _ in value.shape)])


def _infer_same(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return infos[0]


def _numpy_trilu(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    return (np.triu if attrs["upper"] else np.tril)(x, attrs["k"])


def _lower_trilu(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, k = buffers[0], attrs["k"]

    def element(*i: Expr) -> Expr:
        row, column = i[-2], i[-1]
        keep = ge(column - row, k) if attrs["upper"] else ge(row - column, -k)
        return select(keep, x[i], const(0, x.dtype))

    return b.compute("trilu", x.shape, x.dtype, element)


def _infer_eye(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(tuple(attrs["shape"]), dtype(attrs["dtype"]))


def _lower_eye(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    assert isinstance(info, TensorInfo)
    t = info.dtype
    return b.compute("eye", info.shape, t, lambda r, c: select(eq(c - r, attrs["k"]), const(1, t), const(0, t)))


def _numpy_eye(attrs: Mapping[str, Any]) -> np.ndarray:
    return np.eye(*attrs["out_shape"], k=attrs["k"]).astype(attrs["out_dtype"])


SHAPE_OPS: dict[str, OpDef] = table(
    OpDef("reshape", _infer_reshape, lambda a, x: x.reshape(a["out_shape"]), _lower_reshape, FusionKind.INJECTIVE),
    OpDef("transpose", _infer_transpose, lambda a, x: x.transpose(a["axes"]).copy(), _lower_transpose, FusionKind.INJECTIVE),
    OpDef("broadcast_to", _infer_broadcast, lambda a, x: np.broadcast_to(x, a["out_shape"]).copy(), _lower_broadcast, FusionKind.BROADCAST),
    OpDef("concat", _infer_concat, lambda a, *x: np.concatenate(x, a["axis"]), _lower_concat, FusionKind.INJECTIVE),
    OpDef("slice", _infer_slice, _numpy_slice, _lower_slice, FusionKind.INJECTIVE),
    OpDef("pad", _infer_pad, _numpy_pad, _lower_pad, FusionKind.INJECTIVE),
    OpDef("tile", _infer_tile, lambda a, x: np.tile(x, a["repeats"]), _lower_tile, FusionKind.INJECTIVE),
    OpDef("iota", _infer_iota, _numpy_iota, _lower_iota, FusionKind.INJECTIVE),
    OpDef("full", _infer_full, lambda a, v: np.full(a["out_shape"], v.reshape(-1)[0], v.dtype), _lower_full, FusionKind.INJECTIVE),
    OpDef("trilu", _infer_same, _numpy_trilu, _lower_trilu, FusionKind.INJECTIVE),
    OpDef("eye", _infer_eye, _numpy_eye, _lower_eye, FusionKind.INJECTIVE),
)
