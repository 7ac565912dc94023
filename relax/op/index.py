"""Gathers and scatters: elements chosen by the contents of index tensors (i32 or i64; negative counts from the end)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import i64
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, same_as_first, table
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import (
    Const,
    Expr,
    Var,
    binary,
    cast,
    const,
    eq,
    gt,
    logical_and,
    logical_not,
    logical_or,
    lt,
    select,
)
from everport.tir.intrin import call
from everport.tir.stmt import If, Stmt, Store, nest, seq


def wrapped(index: Expr, extent: Expr) -> Expr:
    """A negative index counted from the end, kept within bounds (out of range is undefined in ONNX; memory stays safe)."""
    wide = cast(index, i64)
    at = select(lt(wide, 0), wide + extent, wide)
    return binary("max", binary("min", at, extent - 1), Const(0))


def _np_wrapped(index: np.ndarray, extent: int) -> np.ndarray:
    at = np.where(index < 0, index.astype(np.int64) + extent, index.astype(np.int64))
    return np.clip(at, 0, max(extent - 1, 0))


def _check_index(info: TensorInfo, what: str) -> None:
    if not info.dtype.is_int:
        raise CompileError(f"{what}: indices must be integers, not {info.dtype}")


def _infer_gather(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    x, index = infos
    _check_index(index, "gather")
    axis = attrs["axis"]
    return TensorInfo((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)


def _numpy_gather(attrs: Mapping[str, Any], x: np.ndarray, index: np.ndarray) -> np.ndarray:
    if index.size == 0 or x.size == 0:
        return np.zeros(attrs["out_shape"], x.dtype)
    return np.take(x, _np_wrapped(index, x.shape[attrs["axis"]]), attrs["axis"])


def _lower_gather(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    (x, index), axis = buffers, attrs["axis"]
    assert isinstance(info, TensorInfo)

    def element(*i: Expr) -> Expr:
        chosen = index[tuple(i[axis : axis + index.rank])]
        return x[(*i[:axis], wrapped(chosen, x.shape[axis]), *i[axis + index.rank :])]

    return b.compute("gather", info.shape, x.dtype, element)


def _infer_gather_elements(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    _check_index(infos[1], "gather_elements")
    return TensorInfo(infos[1].shape, infos[0].dtype)


def _numpy_gather_elements(attrs: Mapping[str, Any], x: np.ndarray, index: np.ndarray) -> np.ndarray:
    places = list(np.indices(index.shape))
    places[attrs["axis"]] = _np_wrapped(index, x.shape[attrs["axis"]])
    return x[tuple(places)]


def _lower_gather_elements(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    (x, index), axis = buffers, attrs["axis"]
    return b.compute(
        "gather",
        index.shape,
        x.dtype,
        lambda *i: x[(*i[:axis], wrapped(index[i], x.shape[axis]), *i[axis + 1 :])],
    )


def _infer_gather_nd(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    x, index = infos
    _check_index(index, "gather_nd")
    batch, depth = attrs["batch_dims"], attrs["depth"]
    return TensorInfo((*index.shape[:-1], *x.shape[batch + depth :]), x.dtype)


def _numpy_gather_nd(attrs: Mapping[str, Any], x: np.ndarray, index: np.ndarray) -> np.ndarray:
    batch, depth = attrs["batch_dims"], attrs["depth"]
    places: list[Any] = []
    outer = index.shape[:-1]
    for k in range(batch):
        places.append(np.arange(x.shape[k]).reshape([-1 if j == k else 1 for j in range(len(outer))]))
    for k in range(depth):
        places.append(_np_wrapped(index[..., k], x.shape[batch + k]))
    return np.ascontiguousarray(x[tuple(np.broadcast_arrays(*places))]).reshape(attrs["out_shape"])


def _lower_gather_nd(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, index = buffers
    batch, depth = attrs["batch_dims"], attrs["depth"]
    assert isinstance(info, TensorInfo)

    def element(*i: Expr) -> Expr:
        outer, rest = i[: index.rank - 1], i[index.rank - 1 :]
        chosen = [wrapped(index[(*outer, Const(k))], x.shape[batch + k]) for k in range(depth)]
        return x[(*outer[:batch], *chosen, *rest)]

    return b.compute("gather", info.shape, x.dtype, element)


_COMBINE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "none": lambda old, new: new,
    "add": lambda old, new: old + new if not old.dtype.is_bool else logical_or(old, new),
    "mul": lambda old, new: old * new if not old.dtype.is_bool else logical_and(old, new),
    "max": lambda old, new: binary("max", old, new),
    "min": lambda old, new: binary("min", old, new),
}
_NUMPY: dict[str, Any] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def _scatter_into(y: np.ndarray, places: tuple[np.ndarray, ...], values: np.ndarray, reduction: str) -> np.ndarray:
    """In index order, the last one wins."""
    if reduction != "none":
        _NUMPY[reduction].at(y, places, values)
        return y
    flat = np.ravel_multi_index([np.ravel(p) for p in np.broadcast_arrays(*places)], y.shape)
    for at, value in zip(flat, np.ravel(values), strict=True):
        y.reshape(-1)[at] = value
    return y


def _numpy_scatter_elements(attrs: Mapping[str, Any], x: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    places = list(np.indices(index.shape))
    places[attrs["axis"]] = _np_wrapped(index, x.shape[attrs["axis"]])
    return _scatter_into(x.copy(), tuple(places), updates, attrs["reduction"]) if index.size else x.copy()


def _copied(b: FuncBuilder, x: Buffer, y: Buffer, updates: Buffer, index: Buffer, update: Stmt) -> None:
    """One opaque block: y = x, then the updates in order."""
    loops = [(Var(f"c{k}"), d) for k, d in enumerate(x.shape)]
    at = tuple(v for v, _ in loops)
    b.block("scatter", [], [y], lambda: seq(nest(loops, Store(y, at, x[at])), update), reads=[x, updates, index])


def _lower_scatter_elements(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    (x, index, updates), axis = buffers, attrs["axis"]
    y = b.buffer("scattered", x.shape, x.dtype)
    loops = [(Var(f"u{k}"), d) for k, d in enumerate(index.shape)]
    at = tuple(v for v, _ in loops)
    place = (*at[:axis], wrapped(index[at], x.shape[axis]), *at[axis + 1 :])
    _copied(b, x, y, updates, index, nest(loops, Store(y, place, _COMBINE[attrs["reduction"]](y[place], updates[at]))))
    return y


def _numpy_scatter_nd(attrs: Mapping[str, Any], x: np.ndarray, index: np.ndarray, updates: np.ndarray) -> np.ndarray:
    depth, y = attrs["depth"], x.copy()
    flat_index, rows = index.reshape(-1, depth), updates.reshape((-1, *x.shape[depth:]))
    for place, value in zip(flat_index, rows, strict=True):
        at = tuple(int(_np_wrapped(p, x.shape[k])) for k, p in enumerate(place))
        y[at] = value if attrs["reduction"] == "none" else _NUMPY[attrs["reduction"]](y[at], value)
    return y


def _lower_scatter_nd(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    (x, index, updates), depth = buffers, attrs["depth"]
    y = b.buffer("scattered", x.shape, x.dtype)
    outer = [(Var(f"u{k}"), d) for k, d in enumerate(index.shape[:-1])]
    inner = [(Var(f"w{k}"), d) for k, d in enumerate(x.shape[depth:])]
    o, w = tuple(v for v, _ in outer), tuple(v for v, _ in inner)
    place = (*(wrapped(index[(*o, Const(k))], x.shape[k]) for k in range(depth)), *w)
    update = Store(y, place, _COMBINE[attrs["reduction"]](y[place], updates[(*o, *w)]))
    _copied(b, x, y, updates, index, nest([*outer, *inner], update))
    return y


def _infer_one_hot(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    axis, shape = attrs["axis"], infos[0].shape
    return TensorInfo((*shape[:axis], const(attrs["depth"]), *shape[axis:]), infos[1].dtype)


def _numpy_one_hot(attrs: Mapping[str, Any], index: np.ndarray, values: np.ndarray) -> np.ndarray:
    depth = attrs["out_shape"][attrs["axis"]]
    at = index.astype(np.int64)
    at = np.where(at < 0, at + depth, at)
    hot = np.expand_dims(at, attrs["axis"]) == np.arange(depth).reshape(
        [-1 if k == attrs["axis"] else 1 for k in range(index.ndim + 1)]
    )
    return np.where(hot, values[1], values[0]).astype(values.dtype)


def _lower_one_hot(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    (index, values), axis = buffers, attrs["axis"]
    assert isinstance(info, TensorInfo)
    depth = const(attrs["depth"])

    def element(*i: Expr) -> Expr:
        at = cast(index[(*i[:axis], *i[axis + 1 :])], i64)
        at = select(lt(at, 0), at + depth, at)
        return select(eq(at, i[axis]), values[Const(1)], values[Const(0)])

    return b.compute("one_hot", info.shape, values.dtype, element)


def _numpy_reverse(attrs: Mapping[str, Any], x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    y = x.copy()
    batch, time = attrs["batch_axis"], attrs["time_axis"]
    moved, source = np.moveaxis(y, (batch, time), (0, 1)), np.moveaxis(x, (batch, time), (0, 1))
    for k, n in enumerate(lengths):
        moved[k, :n] = source[k, :n][::-1]
    return y


def _lower_reverse(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, lengths = buffers
    batch, time = attrs["batch_axis"], attrs["time_axis"]

    def element(*i: Expr) -> Expr:
        n = cast(lengths[i[batch]], i64)
        place = list(i)
        place[time] = wrapped(select(lt(i[time], n), n - 1 - i[time], i[time]), x.shape[time])
        return x[tuple(place)]

    return b.compute("reverse", x.shape, x.dtype, element)


def _infer_topk(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> StructInfo:
    shape = tuple(const(attrs["k"]) if a == attrs["axis"] else d for a, d in enumerate(infos[0].shape))
    return TupleInfo((TensorInfo(shape, infos[0].dtype), TensorInfo(shape, i64)))


def _numpy_topk(attrs: Mapping[str, Any], x: np.ndarray) -> Any:
    axis, k = attrs["axis"], attrs["out_shape"][attrs["axis"]]
    if attrs["largest"]:
        order = x.shape[axis] - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    else:
        order = np.argsort(x, axis=axis, kind="stable")
    order = np.take(order, range(k), axis)
    return np.take_along_axis(x, order, axis), order.astype(np.int64)


def _lower_topk(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Any:
    """Ranks by counting, then each element of rank below k goes to its place. Ties keep index order; NaN is the greatest."""
    x, axis = buffers[0], attrs["axis"]
    assert isinstance(info, TupleInfo)
    shape = info.fields[0].shape  # type: ignore[attr-defined]
    extent = x.shape[axis]

    def before(*i: Expr) -> Expr:
        own, other = x[i[:-1]], x[(*i[:axis], i[-1], *i[axis + 1 : -1])]
        better = gt(other, own) if attrs["largest"] else lt(other, own)
        same = eq(other, own)
        if x.dtype.is_float:
            nan, own_nan = call("isnan", other), call("isnan", own)
            better = logical_or(better, logical_and(nan, logical_not(own_nan)) if attrs["largest"] else logical_and(own_nan, logical_not(nan)))
            same = logical_or(same, logical_and(nan, own_nan))
        tie = logical_and(same, lt(i[-1], i[axis]))
        return select(logical_or(better, tie), const(1), const(0))

    rank = b.reduce("rank", x.shape, [extent], i64, "sum", before)
    values, places = b.buffer("values", shape, x.dtype), b.buffer("places", shape, i64)

    def body(*outer: Var) -> Stmt:
        inner = Var("j")
        at = (*outer[:axis], inner, *outer[axis:])
        to = (*outer[:axis], rank[at], *outer[axis:])
        put = seq(Store(values, to, x[at]), Store(places, to, inner))
        return nest([(inner, extent)], If(lt(rank[at], const(attrs["k"])), put))

    b.block("topk", [(f"v{a}", d, "spatial") for a, d in enumerate(x.shape) if a != axis], [values, places], body, reads=[x, rank])
    return values, places


INDEX_OPS: dict[str, OpDef] = table(
    OpDef("gather", _infer_gather, _numpy_gather, _lower_gather, FusionKind.INJECTIVE),
    OpDef("gather_elements", _infer_gather_elements, _numpy_gather_elements, _lower_gather_elements, FusionKind.INJECTIVE),
    OpDef("gather_nd", _infer_gather_nd, _numpy_gather_nd, _lower_gather_nd, FusionKind.INJECTIVE),
    OpDef("scatter_elements", same_as_first, _numpy_scatter_elements, _lower_scatter_elements, FusionKind.OPAQUE),
    OpDef("scatter_nd", same_as_first, _numpy_scatter_nd, _lower_scatter_nd, FusionKind.OPAQUE),
    OpDef("one_hot", _infer_one_hot, _numpy_one_hot, _lower_one_hot, FusionKind.INJECTIVE),
    OpDef("reverse_sequence", same_as_first, _numpy_reverse, _lower_reverse, FusionKind.INJECTIVE),
    OpDef("topk", _infer_topk, _numpy_topk, _lower_topk, FusionKind.OPAQUE),
)

