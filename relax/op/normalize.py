"""Softmax and normalisations over trailing axes, and local response normalisation.

softmax, log_softmax: attribute axis. layer_norm: x, scale[, bias] over axes axis.. with epsilon, gives the result (and mean
and 1/deviation as second and third where stats=1). rms_norm: x, scale over axes axis...
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import f32
from everport.relax.op.base import FusionKind, InferContext, OpDef, same_as_first, table
from everport.relax.op.binary import broadcast_index
from everport.relax.op.reduce import accumulator, reduce_block
from everport.relax.op.unary import widened
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, cast, const
from everport.tir.intrin import call


def _softmax(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    e = np.exp(wide - np.max(wide, axis=attrs["axis"], keepdims=True, initial=-np.inf))
    return (e / np.sum(e, axis=attrs["axis"], keepdims=True)).astype(x.dtype)


def _log_softmax(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    shifted = wide - np.max(wide, axis=attrs["axis"], keepdims=True, initial=-np.inf)
    return (shifted - np.log(np.sum(np.exp(shifted), axis=attrs["axis"], keepdims=True))).astype(x.dtype)


def _lower_softmax(log: bool) -> Callable[..., Buffer]:
    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x, axis = buffers[0], attrs["axis"]
        t = accumulator(x.dtype)
        how = {"axes": (axis,), "keepdims": 1}
        top = reduce_block(b, "top", x, how, "max", lambda v: cast(v, t), t)

        def row(i: Sequence[Expr]) -> tuple[Expr, ...]:
            return (*i[:axis], Const(0), *i[axis + 1 :])

        if log:
            shifted = b.compute("shifted", x.shape, t, lambda *i: cast(x[i], t) - top[row(i)])
            total = reduce_block(b, "total", shifted, how, "sum", lambda v: call("exp", v), t)
            return b.compute("softmax", x.shape, x.dtype, lambda *i: cast(shifted[i] - call("log", total[row(i)]), x.dtype))
        powers = b.compute("powers", x.shape, t, lambda *i: call("exp", cast(x[i], t) - top[row(i)]))
        total = reduce_block(b, "total", powers, how, "sum", lambda v: v, t)
        return b.compute("softmax", x.shape, x.dtype, lambda *i: cast(powers[i] / total[row(i)], x.dtype))

    return lower


def _rows(x: Sequence[Expr], axis: int) -> tuple[Expr, ...]:
    return tuple(d if k < axis else Const(1) for k, d in enumerate(x))


def _infer_layer_norm(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> StructInfo:
    x = infos[0]
    for scale in infos[1:]:
        ctx.broadcast(x.shape[attrs["axis"] :], scale.shape, "the scale of layer_norm does not fit")
    if not attrs["stats"]:
        return x
    rows = TensorInfo(_rows(x.shape, attrs["axis"]), f32 if x.dtype.bits < 64 else x.dtype)
    return TupleInfo((x, rows, rows))


def _layer_norm(attrs: Mapping[str, Any], x: np.ndarray, *scale: np.ndarray) -> Any:
    wide = widened(x)
    axes = tuple(range(attrs["axis"], x.ndim))
    mean = wide.mean(axis=axes, keepdims=True)
    variance = ((wide - mean) ** 2).mean(axis=axes, keepdims=True)
    inverse = 1 / np.sqrt(variance + np.asarray(attrs["epsilon"], wide.dtype))
    y = ((wide - mean) * inverse).astype(x.dtype)
    y = y * scale[0] + (scale[1] if len(scale) > 1 else np.zeros((), x.dtype))
    y = y.astype(x.dtype)
    return (y, mean, inverse) if attrs["stats"] else y


def _count(x: Buffer, axis: int) -> Expr:
    count: Expr = Const(1)
    for d in x.shape[axis:]:
        count = count * d
    return count


def _lower_layer_norm(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Any:
    x, axis = buffers[0], attrs["axis"]
    t = accumulator(x.dtype)
    how = {"axes": tuple(range(axis, x.rank)), "keepdims": 1}
    count = cast(_count(x, axis), t)
    shape = _rows(x.shape, axis)

    def row(i: Sequence[Expr]) -> tuple[Expr, ...]:
        return (*i[:axis], *(Const(0) for _ in range(axis, x.rank)))

    total = reduce_block(b, "total", x, how, "sum", lambda v: cast(v, t), t)
    mean = b.compute("mean", shape, t, lambda *i: total[i] / count)
    centred = b.compute("centred", x.shape, t, lambda *i: cast(x[i], t) - mean[row(i)])
    squares = reduce_block(b, "squares", centred, how, "sum", lambda v: v * v, t)
    inverse = b.compute(
        "inverse", shape, t, lambda *i: const(1, t) / call("sqrt", squares[i] / count + const(attrs["epsilon"], t))
    )

    def value(*i: Expr) -> Expr:
        y = cast(centred[i] * inverse[row(i)], x.dtype)
        y = y * buffers[1][broadcast_index(buffers[1], i)]
        return y + buffers[2][broadcast_index(buffers[2], i)] if len(buffers) > 2 else y

    result = b.compute("layer_norm", x.shape, x.dtype, value)
    return (result, mean, inverse) if attrs["stats"] else result


def _rms_norm(attrs: Mapping[str, Any], x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    wide = widened(x)
    axes = tuple(range(attrs["axis"], x.ndim))
    square = (wide * wide).mean(axis=axes, keepdims=True)
    return ((wide / np.sqrt(square + np.asarray(attrs["epsilon"], wide.dtype))).astype(x.dtype) * scale).astype(x.dtype)


def _infer_rms_norm(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    ctx.broadcast(infos[0].shape[attrs["axis"] :], infos[1].shape, "the scale of rms_norm does not fit")
    return infos[0]


def _lower_rms_norm(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    (x, scale), axis = buffers, attrs["axis"]
    t = accumulator(x.dtype)
    how = {"axes": tuple(range(axis, x.rank)), "keepdims": 1}
    count = cast(_count(x, axis), t)

    def row(i: Sequence[Expr]) -> tuple[Expr, ...]:
        return (*i[:axis], *(Const(0) for _ in range(axis, x.rank)))

    squares = reduce_block(b, "squares", x, how, "sum", lambda v: cast(v, t) * cast(v, t), t)
    inverse = b.compute(
        "inverse",
        _rows(x.shape, axis),
        t,
        lambda *i: const(1, t) / call("sqrt", squares[i] / count + const(attrs["epsilon"], t)),
    )
    return b.compute(
        "rms_norm",
        x.shape,
        x.dtype,
        lambda *i: cast(cast(x[i], t) * inverse[row(i)], x.dtype) * scale[broadcast_index(scale, i)],
    )


NORMALIZE_OPS: dict[str, OpDef] = table(
    OpDef("softmax", same_as_first, _softmax, _lower_softmax(False), FusionKind.REDUCTION),
    OpDef("log_softmax", same_as_first, _log_softmax, _lower_softmax(True), FusionKind.REDUCTION),
    OpDef("layer_norm", _infer_layer_norm, _layer_norm, _lower_layer_norm, FusionKind.REDUCTION),
    OpDef("rms_norm", _infer_rms_norm, _rms_norm, _lower_rms_norm, FusionKind.REDUCTION),
)
