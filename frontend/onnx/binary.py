"""Elementwise operators of two and more arguments, selection, and casts."""

from __future__ import annotations

import numpy as np
import onnx

from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows
from everport.ir.dtype import DType, dtype, from_numpy
from everport.relax.expr import RelaxExpr
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Const


def _pair(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        return ctx.emit(op, ctx.required(0), ctx.required(1))

    return convert


def _pair_old(op: str) -> Converter:
    """Opsets before 7: no broadcasting unless asked for, along an axis."""

    def convert(ctx: NodeContext) -> Result:
        a, b = ctx.required(0), ctx.required(1)
        if ctx.attr("broadcast", 0) and ctx.attr("axis") is not None:
            rank, inner, axis = ctx.info(0).rank, ctx.info(1), ctx.attr("axis")
            axis += rank if axis < 0 else 0
            after = rank - axis - inner.rank
            b = ctx.emit("reshape", b, shape=(*inner.shape, *(Const(1) for _ in range(after))))
        return ctx.emit(op, a, b)

    return convert


def binary_rows(op: str, since: int = 7) -> list[tuple[int, Converter]]:
    return [(1, _pair_old(op)), (since, _pair(op))]


def _power(ctx: NodeContext) -> Result:
    x, y = ctx.required(0), ctx.required(1)
    a, b = ctx.info(0).dtype, ctx.info(1).dtype
    if a == b:
        return ctx.emit("power", x, y)
    if a.is_float:
        return ctx.emit("power", x, ctx.emit("cast", y, to=a.name))
    wide = "f64"
    result = ctx.emit("power", ctx.emit("cast", x, to=wide), ctx.emit("cast", y, to=wide))
    return ctx.emit("cast", result, to=a.name)


def _mod(ctx: NodeContext) -> Result:
    return ctx.emit("fmod" if ctx.attr("fmod", 0) else "mod", ctx.required(0), ctx.required(1))


def _many(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        total = ctx.required(0)
        for k in range(1, len(ctx.inputs)):
            total = ctx.emit(op, total, ctx.required(k))
        return total

    return convert


def _mean(ctx: NodeContext) -> Result:
    total = _many("add")(ctx)
    assert isinstance(total, RelaxExpr)
    count = ctx.constant(np.asarray(len(ctx.inputs)).astype(ctx.info(0).dtype.numpy))
    return ctx.emit("divide", total, count)


def _shift(ctx: NodeContext) -> Result:
    left = ctx.attr("direction") == "LEFT"
    return ctx.emit("shift_left" if left else "shift_right", ctx.required(0), ctx.required(1))


def target_dtype(ctx: NodeContext, code: int) -> DType:
    """The type of a TensorProto code; an UnsupportedError names it."""
    try:
        return from_numpy(onnx.helper.tensor_dtype_to_np_dtype(code))
    except KeyError:
        raise ctx.unsupported(f"the element type {onnx.TensorProto.DataType.Name(code)} is not supported") from None


_FP8 = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz")


def cast_to(ctx: NodeContext, x: RelaxExpr, to: DType, saturate: bool = True) -> RelaxExpr:
    """A cast by ONNX's rules: to fp8 it saturates unless told not to; a float out of int4's range gives 0 (undefined in the
    standard; the reference implementation does so)."""
    info = x.info
    assert isinstance(info, TensorInfo)
    if to.name in _FP8 and saturate:
        wide = as_dtype(ctx, x, "f32") if info.dtype.name in _FP8 or not info.dtype.is_float else x
        kind = wide.info.dtype.numpy  # type: ignore[attr-defined]
        low, high = (ctx.constant(np.asarray(v).astype(kind)) for v in (to.min_value, to.max_value))
        x = ctx.emit("minimum", ctx.emit("maximum", wide, low), high)
    if to.name == "i4" and info.dtype.is_float:
        low, high, zero = (ctx.constant(np.asarray(v).astype(info.dtype.numpy)) for v in (-9, 8, 0))
        inside = ctx.emit("logical_and", ctx.emit("greater", x, low), ctx.emit("less", x, high))
        x = ctx.emit("where", inside, x, zero)
    return ctx.emit("cast", x, to=to.name)


def _cast(ctx: NodeContext) -> Result:
    return cast_to(ctx, ctx.required(0), target_dtype(ctx, ctx.attr("to")), bool(ctx.attr("saturate", 1)))


def _cast_old(ctx: NodeContext) -> Result:
    return cast_to(ctx, ctx.required(0), target_dtype(ctx, onnx.TensorProto.DataType.Value(ctx.attr("to"))))


def _cast_like(ctx: NodeContext) -> Result:
    return cast_to(ctx, ctx.required(0), ctx.info(1).dtype, bool(ctx.attr("saturate", 1)))


def _where(ctx: NodeContext) -> Result:
    return ctx.emit("where", ctx.required(0), ctx.required(1), ctx.required(2))


def as_dtype(ctx: NodeContext, x: RelaxExpr, to: str) -> RelaxExpr:
    """A cast, or x itself where it has the type."""
    info = x.info
    assert isinstance(info, TensorInfo)
    return x if info.dtype == dtype(to) else cast_to(ctx, x, dtype(to))


BINARY: Rows = {
    "Add": binary_rows("add"),
    "Sub": binary_rows("subtract"),
    "Mul": binary_rows("multiply"),
    "Div": binary_rows("divide"),
    "Pow": [(1, _power)],
    "Mod": [(10, _mod)],
    "Max": [(1, _many("maximum"))],
    "Min": [(1, _many("minimum"))],
    "Sum": [(1, _many("add"))],
    "Mean": [(1, _mean)],
    "Equal": binary_rows("equal"),
    "Less": binary_rows("less"),
    "LessOrEqual": [(12, _pair("less_equal"))],
    "Greater": binary_rows("greater"),
    "GreaterOrEqual": [(12, _pair("greater_equal"))],
    "And": binary_rows("logical_and"),
    "Or": binary_rows("logical_or"),
    "Xor": binary_rows("logical_xor"),
    "BitwiseAnd": [(18, _pair("bitwise_and"))],
    "BitwiseOr": [(18, _pair("bitwise_or"))],
    "BitwiseXor": [(18, _pair("bitwise_xor"))],
    "BitShift": [(11, _shift)],
    "Where": [(9, _where)],
    "Cast": [(1, _cast_old), (6, _cast)],
    "CastLike": [(15, _cast_like)],
}
