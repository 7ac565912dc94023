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


def cast_to(ctx: NodeContext, x: RelaxExpr, to: DType, saturate: bool = True, round_mode: str = "up") -> RelaxExpr:
    """A cast by ONNX's rules. To fp8 it saturates unless told not to; to f4 and f6 it always does; a float outside the range of
    an integer of less than 8 bits gives 0 (undefined in the standard; the reference implementation does so)."""
    info = x.info
    assert isinstance(info, TensorInfo)
    if to.name == "f8e8m0" and info.dtype != to:
        return _cast_to_power(ctx, x, saturate, round_mode)
    narrow_int = to.is_int and to.bits < 8 and info.dtype.is_float
    if (to.name in _FP8 and saturate and not info.dtype.is_float) or ((to.name in _FP8 or narrow_int) and info.dtype.bits < 16):
        x = ctx.emit("cast", x, to="f32")
    if to.name in _FP8 and saturate:
        x = ctx.emit("minimum", ctx.emit("maximum", x, _number(ctx, to.min_value, x)), _number(ctx, to.max_value, x))
    if narrow_int:
        above, below = (ctx.emit(op, x, _number(ctx, v, x)) for op, v in (("greater", to.min_value - 1), ("less", to.max_value + 1)))
        x = ctx.emit("where", ctx.emit("logical_and", above, below), x, _number(ctx, 0, x))
    return ctx.emit("cast", x, to=to.name)


def _number(ctx: NodeContext, value: float, like: RelaxExpr) -> RelaxExpr:
    assert isinstance(like.info, TensorInfo)
    return ctx.constant(np.asarray(value).astype(like.info.dtype.numpy))


def _cast_to_power(ctx: NodeContext, x: RelaxExpr, saturate: bool, round_mode: str) -> RelaxExpr:
    """A cast to f8e8m0: the nearest power of two (ties up), or the next one up or down. Out of range (zero and infinity too)
    it saturates, or gives NaN; so does what is negative, of which the standard says nothing."""
    if round_mode not in ("up", "down", "nearest"):
        raise ctx.unsupported(f"round_mode {round_mode!r}")
    source = x.info.dtype  # type: ignore[attr-defined]
    x = ctx.emit("cast", x, to="f32" if source.is_bool or (source.is_float and source.bits <= 32) else "f64")
    number = lambda value: _number(ctx, value, x)  # noqa: E731
    low, high = number(2.0**-127), number(2.0**127)
    outside = ctx.emit("less", x, number(0))
    kept = ctx.emit("minimum", ctx.emit("maximum", x, low), high)
    if not saturate:
        outside = ctx.emit("logical_or", ctx.emit("less", x, low), ctx.emit("greater", x, high))
    near = ctx.emit("cast", ctx.emit("cast", kept, to="f8e8m0"), to=x.info.dtype.name)  # type: ignore[attr-defined]
    if round_mode == "up":
        near = ctx.emit("where", ctx.emit("less", near, kept), ctx.emit("add", near, near), near)
    elif round_mode == "down":
        near = ctx.emit("where", ctx.emit("greater", near, kept), ctx.emit("multiply", near, number(0.5)), near)
    return ctx.emit("cast", ctx.emit("where", outside, number(np.nan), near), to="f8e8m0")


def _cast(ctx: NodeContext) -> Result:
    to = target_dtype(ctx, ctx.attr("to"))
    return cast_to(ctx, ctx.required(0), to, bool(ctx.attr("saturate", 1)), ctx.attr("round_mode", "up"))


def _cast_old(ctx: NodeContext) -> Result:
    return cast_to(ctx, ctx.required(0), target_dtype(ctx, onnx.TensorProto.DataType.Value(ctx.attr("to"))))


def _cast_like(ctx: NodeContext) -> Result:
    return cast_to(ctx, ctx.required(0), ctx.info(1).dtype, bool(ctx.attr("saturate", 1)), ctx.attr("round_mode", "up"))


def _bitcast(ctx: NodeContext) -> Result:
    source, to = ctx.info(0).dtype, target_dtype(ctx, ctx.attr("to"))
    if source.bits != to.bits:
        raise ctx.unsupported(f"a bitcast between sizes, of {source} to {to}, which the standard does not allow")
    return ctx.required(0) if source == to else ctx.emit("bitcast", ctx.required(0), to=to.name)


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
    "BitCast": [(26, _bitcast)],
}
