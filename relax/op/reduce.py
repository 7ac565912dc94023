"""Reductions over axes, arg-reductions, and cumulative sums.

Attributes: axes (tuple of non-negative ints), keepdims (0 or 1). f16 and bf16 accumulate in f32.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import DType, boolean, f32, i64
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.op.unary import widened
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, Var, binary, cast, const, eq, logical_or, select
from everport.tir.intrin import call
from everport.tir.stmt import For, Store, seq


def reduced_shape(shape: Sequence[Expr], attrs: Mapping[str, Any]) -> tuple[Expr, ...]:
    if attrs["keepdims"]:
        return tuple(Const(1) if k in attrs["axes"] else d for k, d in enumerate(shape))
    return tuple(d for k, d in enumerate(shape) if k not in attrs["axes"])


def accumulator(t: DType) -> DType:
    """The type in which sums of `t` are kept."""
    return f32 if t.is_float and t.bits < 32 else t


def full_index(outer: Sequence[Expr], inner: Sequence[Expr], attrs: Mapping[str, Any], rank: int) -> tuple[Expr, ...]:
    """The input index of output index `outer` and reduction index `inner`."""
    axes = attrs["axes"]
    kept = [o for k, o in enumerate(outer) if k not in axes] if attrs["keepdims"] else list(outer)
    result, a, b = [], iter(kept), iter(inner)
    for k in range(rank):
        result.append(next(b) if k in axes else next(a))
    return tuple(result)


def reduce_block(
    b: FuncBuilder, name: str, x: Buffer, attrs: Mapping[str, Any], kind: str, value: Callable[[Expr], Expr], t: DType
) -> Buffer:
    """One reduction of value(x) over attrs["axes"] in type `t`."""
    shape = reduced_shape(x.shape, attrs)
    extents = [x.shape[k] for k in attrs["axes"]]
    count = len(shape)
    return b.reduce(name, shape, extents, t, kind, lambda *i: value(x[full_index(i[:count], i[count:], attrs, x.rank)]))


def _infer(result: DType | None = None, ints: bool = True) -> Callable[..., TensorInfo]:
    def infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
        t = infos[0].dtype
        if t.is_bool and result is None:
            raise CompileError("reductions do not take bool tensors")
        return TensorInfo(reduced_shape(infos[0].shape, attrs), result or t)

    return infer


def _numpy(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    def meaning(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
        return np.asarray(f(widened(x), axis=tuple(attrs["axes"]), keepdims=bool(attrs["keepdims"]))).astype(attrs["out_dtype"])

    return meaning


def _extreme(which: str) -> Callable[..., np.ndarray]:
    def apply(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
        if x.dtype.kind == "f":
            start: Any = -np.inf if which == "max" else np.inf
        else:
            start = np.iinfo(x.dtype).min if which == "max" else np.iinfo(x.dtype).max
        return getattr(np, which)(x, axis=axis, keepdims=keepdims, initial=start)

    return apply


def _sum(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def _prod(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.prod(x, axis=axis, keepdims=keepdims, dtype=x.dtype)


def _mean(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    count = int(np.prod([x.shape[a] for a in axis], dtype=np.int64))
    total = np.sum(x, axis=axis, keepdims=keepdims, dtype=x.dtype)
    return total / count if x.dtype.kind == "f" else np.trunc(total / max(count, 1))


def _reducer(kind: str) -> Callable[..., Buffer]:
    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x = buffers[0]
        t = accumulator(x.dtype) if kind in ("sum", "prod") else x.dtype
        total = reduce_block(b, kind, x, attrs, kind, lambda v: cast(v, t), t)
        if t == x.dtype:
            return total
        return b.compute("rounded", total.shape, x.dtype, lambda *i: cast(total[i], x.dtype))

    return lower


def _lower_mean(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    t = accumulator(x.dtype)
    total = reduce_block(b, "sum", x, attrs, "sum", lambda v: cast(v, t), t)
    count: Expr = Const(1)
    for a in attrs["axes"]:
        count = count * x.shape[a]

    def mean(v: Expr) -> Expr:
        if t.is_float:
            return cast(v / cast(count, t), x.dtype)
        wide = cast(v, i64)
        return cast(select(eq(count, 0), const(0), binary("tdiv", wide, count)), x.dtype)

    return b.compute("mean", total.shape, x.dtype, lambda *i: mean(total[i]))


def _any(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.any(x, axis=axis, keepdims=keepdims)


def _all(x: np.ndarray, axis: tuple[int, ...], keepdims: bool) -> np.ndarray:
    return np.all(x, axis=axis, keepdims=keepdims)


def _lower_logical(kind: str) -> Callable[..., Buffer]:
    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        return reduce_block(b, kind, buffers[0], attrs, kind, lambda v: v, boolean)

    return lower


def _infer_arg(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(reduced_shape(infos[0].shape, attrs), i64)


def _numpy_arg(which: str) -> Callable[..., np.ndarray]:
    def meaning(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
        axis = attrs["axes"][0]
        pick = np.argmax if which == "max" else np.argmin
        if attrs["last"]:
            found = x.shape[axis] - 1 - pick(np.flip(widened(x), axis), axis=axis)
        else:
            found = pick(widened(x), axis=axis)
        return (np.expand_dims(found, axis) if attrs["keepdims"] else found).astype(np.int64)

    return meaning


def _lower_arg(which: str) -> Callable[..., Buffer]:
    """The extreme first, then the least (or greatest) position that holds it; NaN counts as the extreme."""

    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x = buffers[0]
        best = reduce_block(b, "best", x, attrs, which, lambda v: v, x.dtype)
        count = best.rank
        extent = x.shape[attrs["axes"][0]]

        def position(*i: Expr) -> Expr:
            value = x[full_index(i[:count], i[count:], attrs, x.rank)]
            same = eq(value, best[i[:count]])
            if x.dtype.is_float:
                same = logical_or(same, call("isnan", value))
            return select(same, i[count], const(-1) if attrs["last"] else extent)

        return b.reduce("position", best.shape, [extent], i64, "max" if attrs["last"] else "min", position)

    return lower


def _infer_scan(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return infos[0]


def _numpy_scan(f: Any, start: int) -> Callable[..., np.ndarray]:
    def meaning(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
        axis = attrs["axis"]
        y = np.flip(x, axis) if attrs["reverse"] else x
        total = f(widened(y), axis=axis, dtype=widened(y).dtype)
        if attrs["exclusive"]:
            first = np.full_like(np.take(total, [0], axis), start) if x.shape[axis] else total
            total = np.concatenate([first, np.take(total, range(x.shape[axis] - 1), axis)], axis) if x.shape[axis] else total
        return (np.flip(total, axis) if attrs["reverse"] else total).astype(x.dtype)

    return meaning


def _lower_scan(op: str) -> Callable[..., Buffer]:
    """A running sum along the axis in one sequential loop a row."""

    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x, axis = buffers[0], attrs["axis"]
        t = accumulator(x.dtype)
        y = b.buffer("scan", x.shape, x.dtype)
        running = Buffer("running", (Const(1),), t, "local")
        extent = x.shape[axis]
        others = [(f"v{k}", d, "spatial") for k, d in enumerate(x.shape) if k != axis]

        def body(*outer: Var) -> Any:
            step = Var("k")
            place: Expr = extent - 1 - step if attrs["reverse"] else step
            index = (*outer[:axis], place, *outer[axis:])
            zero = Const(0)
            add = Store(running, (zero,), binary(op, running[zero], cast(x[index], t)))
            put = Store(y, index, cast(running[zero], x.dtype))
            parts = [put, add] if attrs["exclusive"] else [add, put]
            return seq(Store(running, (zero,), const(0 if op == "+" else 1, t)), For(step, extent, seq(*parts)))

        b.block("scan", others, [y], body, reads=[x], allocs=(running,))
        return y

    return lower


REDUCE_OPS: dict[str, OpDef] = table(
    OpDef("reduce_sum", _infer(), _numpy(_sum), _reducer("sum"), FusionKind.REDUCTION),
    OpDef("reduce_prod", _infer(), _numpy(_prod), _reducer("prod"), FusionKind.REDUCTION),
    OpDef("reduce_max", _infer(), _numpy(_extreme("max")), _reducer("max"), FusionKind.REDUCTION),
    OpDef("reduce_min", _infer(), _numpy(_extreme("min")), _reducer("min"), FusionKind.REDUCTION),
    OpDef("reduce_mean", _infer(), _numpy(_mean), _lower_mean, FusionKind.REDUCTION),
    OpDef("reduce_any", _infer(boolean), _numpy(_any), _lower_logical("or"), FusionKind.REDUCTION),
    OpDef("reduce_all", _infer(boolean), _numpy(_all), _lower_logical("and"), FusionKind.REDUCTION),
    OpDef("argmax", _infer_arg, _numpy_arg("max"), _lower_arg("max"), FusionKind.OPAQUE),
    OpDef("argmin", _infer_arg, _numpy_arg("min"), _lower_arg("min"), FusionKind.OPAQUE),
    OpDef("cumsum", _infer_scan, _numpy_scan(np.cumsum, 0), _lower_scan("+"), FusionKind.OPAQUE),
    OpDef("cumprod", _infer_scan, _numpy_scan(np.cumprod, 1), _lower_scan("*"), FusionKind.OPAQUE),
)
