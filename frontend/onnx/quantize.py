"""Quantisation: to and from integers and small floats, and products of quantised tensors.

Scales and zero points are for the whole tensor, one an index of an axis, or one a block along an axis.
"""

from __future__ import annotations

from everport.frontend.onnx.binary import as_dtype, cast_to, target_dtype
from everport.frontend.onnx.context import NodeContext, Result, Rows
from everport.frontend.onnx.nn import kernel_extents, matmul, spatial_attrs
from everport.frontend.onnx.reduce import per_channel
from everport.frontend.onnx.unary import like
from everport.ir.dtype import DType, dtype, f32, u8
from everport.relax.expr import Constant, RelaxExpr
from everport.relax.op.base import normalize_axis
from everport.tir.expr import Const, as_int

_INTEGERS = ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16")
_FLOATS = ("f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1", "f6e2m3", "f6e3m2")


def _type(x: RelaxExpr) -> DType:
    return x.info.dtype  # type: ignore[attr-defined]


def _quantize(ctx: NodeContext) -> Result:
    x, scale, zero = ctx.required(0), ctx.required(1), ctx.input(2)
    t = target_dtype(ctx, ctx.attr("output_dtype")) if ctx.attr("output_dtype", 0) else u8 if zero is None else _type(zero)
    if zero is not None and _type(zero) != t:
        raise ctx.unsupported(f"a quantization to {t} with a zero point of {_type(zero)}")
    if t.name not in (*_INTEGERS, *_FLOATS):
        raise ctx.unsupported(f"a quantization to {t}")
    precision = target_dtype(ctx, ctx.attr("precision")) if ctx.attr("precision", 0) else _division_type(ctx, scale)
    if not _type(x).is_float and _type(x).name != "i32":
        raise ctx.unsupported(f"a quantization of {_type(x)}")
    spread = _spread(ctx, as_dtype(ctx, scale, precision.name))
    real = ctx.emit("divide", as_dtype(ctx, x, precision.name), spread)
    return _quantized(ctx, real, None if zero is None else _spread(ctx, zero), t, bool(ctx.attr("saturate", 1)))


def _division_type(ctx: NodeContext, scale: RelaxExpr) -> DType:
    """The type that a division by `scale` is done in: the scale's, where that is one to calculate in. A power of two
    (f8e8m0) divides f32 exactly, integers divide exactly in f64."""
    t = _type(scale)
    if t.is_float and t.bits >= 16:
        return t
    if t.name not in ("f8e8m0", "i32"):
        raise ctx.unsupported(f"a scale of {t}")
    return f32 if t.is_float else dtype("f64")


def _quantized(ctx: NodeContext, real: RelaxExpr, zero: RelaxExpr | None, t: DType, saturate: bool = True) -> RelaxExpr:
    """A quotient rounded (to integers, half to even), moved by the zero point, and brought into the range of `t`."""
    if t.is_int:
        real = ctx.emit("round", real)
    if zero is not None and not _is_zero(zero):
        # f16 and bf16 could not hold the sum of a rounded quotient and a zero point.
        wide = real if _type(real).bits > 16 else as_dtype(ctx, real, "f32")
        real = ctx.emit("add", wide, as_dtype(ctx, zero, _type(wide).name))
    return saturated(ctx, real, t) if t.is_int else cast_to(ctx, real, t, saturate)


def _is_zero(zero: RelaxExpr) -> bool:
    return isinstance(zero, Constant) and not (zero.data != 0).any()


def saturated(ctx: NodeContext, x: RelaxExpr, t: DType) -> RelaxExpr:
    """A float rounded already, clamped and cast to an integer type."""
    wide = x if _type(x).bits > 16 else as_dtype(ctx, x, "f32")
    return ctx.emit("cast", ctx.emit("minimum", ctx.emit("maximum", wide, like(ctx, t.min_value, wide)), like(ctx, t.max_value, wide)), to=t.name)


def _spread(ctx: NodeContext, v: RelaxExpr) -> RelaxExpr:
    """A scale or zero point shaped to broadcast over the first input: per tensor, per axis, or per block."""
    rank, shape = ctx.info(0).rank, v.info.shape  # type: ignore[attr-defined]
    block = ctx.attr("block_size", 0)
    if block:
        if len(shape) != rank:
            raise ctx.unsupported(f"blocks with a scale or zero point of rank {len(shape)} for a tensor of rank {rank}")
        axis = normalize_axis(ctx.attr("axis", 1), rank)
        wide = (*shape[: axis + 1], Const(1), *shape[axis + 1 :])
        grown = (*shape[: axis + 1], Const(block), *shape[axis + 1 :])
        spread = ctx.emit("broadcast_to", ctx.emit("reshape", v, shape=wide), shape=grown)
        joined = ctx.emit("reshape", spread, shape=(*shape[:axis], shape[axis] * block, *shape[axis + 1 :]))
        extent = ctx.info(0).shape[axis]
        stops = tuple(extent if k == axis else d for k, d in enumerate(shape))
        return ctx.emit("slice", joined, starts=tuple(Const(0) for _ in stops), stops=stops, steps=tuple(1 for _ in stops))
    if len(shape) == 0 or (len(shape) == 1 and as_int(shape[0]) == 1):
        return ctx.emit("reshape", v, shape=())
    if len(shape) > 1:
        raise ctx.unsupported(f"a scale or zero point of rank {len(shape)} without a block size")
    axis = 0 if rank == 1 else normalize_axis(ctx.attr("axis", 1), rank)
    return ctx.emit("reshape", v, shape=tuple(shape[0] if k == axis else Const(1) for k in range(rank)))


def _dequantize(ctx: NodeContext) -> Result:
    x, scale, zero = ctx.required(0), ctx.required(1), ctx.input(2)
    t = target_dtype(ctx, ctx.attr("output_dtype")) if ctx.attr("output_dtype", 0) else _type(scale)
    if _type(x).name not in (*_INTEGERS, *_FLOATS, "i32") or not t.is_float or t.bits < 16:
        raise ctx.unsupported(f"a dequantization of {_type(x)} by {_type(scale)} to {t}")
    centre = x if zero is None or _is_zero(zero) else centred(ctx, x, _spread(ctx, zero))
    real = ctx.emit("multiply", as_dtype(ctx, centre, "f32"), _spread(ctx, as_dtype(ctx, scale, "f32")))
    return as_dtype(ctx, real, t.name)


def _dynamic_quantize(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    axes = tuple(range(ctx.info(0).rank))
    low = ctx.emit("minimum", ctx.emit("reduce_min", x, axes=axes, keepdims=0), like(ctx, 0))
    high = ctx.emit("maximum", ctx.emit("reduce_max", x, axes=axes, keepdims=0), like(ctx, 0))
    scale = ctx.emit("divide", ctx.emit("subtract", high, low), like(ctx, 255))
    zero = _quantized(ctx, ctx.emit("divide", ctx.emit("neg", low), scale), None, u8)
    return [_quantized(ctx, ctx.emit("divide", x, scale), zero, u8), scale, zero]


def centred(ctx: NodeContext, x: RelaxExpr, zero: RelaxExpr | None, axis: int | None = None) -> RelaxExpr:
    """x - zero in i32 (f32 for floats); a vector of zero points runs along `axis` (counted from the end)."""
    wide = "f32" if _type(x).is_float else "i32"
    x = as_dtype(ctx, x, wide)
    if zero is None:
        return x
    zero = _along(ctx, zero, x.info.rank, axis)  # type: ignore[attr-defined]
    return ctx.emit("subtract", x, as_dtype(ctx, zero, wide))


def _along(ctx: NodeContext, v: RelaxExpr, rank: int, axis: int | None) -> RelaxExpr:
    """A scale or zero point shaped to broadcast: a vector along `axis` (counted from the end), a tensor of one element as a
    scalar, others as they are."""
    shape = v.info.shape  # type: ignore[attr-defined]
    if len(shape) != 1:
        return v
    if as_int(shape[0]) == 1:
        return ctx.emit("reshape", v, shape=())
    if axis is None or rank + axis < 0:
        raise ctx.unsupported("a vector of scales or zero points for a tensor without rows or columns")
    return ctx.emit("reshape", v, shape=tuple(shape[0] if k == rank + axis else Const(1) for k in range(rank)))


def _matmul_integer(ctx: NodeContext) -> Result:
    a = centred(ctx, ctx.required(0), ctx.input(2), -2)
    b = centred(ctx, ctx.required(1), ctx.input(3), -1)
    return matmul(ctx, a, b)


def _conv_integer(ctx: NodeContext) -> Result:
    x = centred(ctx, ctx.required(0), ctx.input(2))
    w = centred(ctx, ctx.required(1), ctx.input(3), -ctx.info(1).rank)
    how = spatial_attrs(ctx, kernel_extents(ctx), ctx.info(0).shape[2:])
    return ctx.emit("conv", x, w, group=ctx.attr("group", 1), **how)


def _requantized(ctx: NodeContext, total: RelaxExpr, scale: RelaxExpr, out_scale: RelaxExpr, out_zero: RelaxExpr) -> RelaxExpr:
    """total * (scale / out_scale) in f32, quantised to the type of the zero point."""
    if any(as_int(v.info.numel()) != 1 for v in (out_scale, out_zero)):  # type: ignore[attr-defined]
        raise ctx.unsupported("a quantized product with several output scales")
    out_scale, out_zero = (ctx.emit("reshape", v, shape=()) for v in (out_scale, out_zero))
    factor = ctx.emit("divide", scale, as_dtype(ctx, out_scale, "f32"))
    return _quantized(ctx, ctx.emit("multiply", as_dtype(ctx, total, "f32"), factor), out_zero, _type(out_zero))


def _qlinear_matmul(ctx: NodeContext) -> Result:
    a, sa, za, b, sb, zb, sy, zy = (ctx.required(k) for k in range(8))
    left, right = centred(ctx, a, za, -2), centred(ctx, b, zb, -1)
    if _type(left) != _type(right):
        left, right = as_dtype(ctx, left, "f32"), as_dtype(ctx, right, "f32")
    rows = _along(ctx, as_dtype(ctx, sa, "f32"), ctx.info(0).rank, -2)
    columns = _along(ctx, as_dtype(ctx, sb, "f32"), ctx.info(3).rank, -1)
    if min(ctx.info(0).rank, ctx.info(3).rank) == 1 and any(v.info.rank for v in (rows, columns)):  # type: ignore[attr-defined]
        raise ctx.unsupported("a quantized product of a vector with scales per row or column")
    return _requantized(ctx, matmul(ctx, left, right), ctx.emit("multiply", rows, columns), sy, zy)


def _qlinear_conv(ctx: NodeContext) -> Result:
    x, sx, zx, w, sw, zw, sy, zy = (ctx.required(k) for k in range(8))
    rank = ctx.info(0).rank
    kernel = ctx.attr("kernel_shape") or [int(as_int(d) or 0) for d in ctx.info(3).shape[2:]]
    how = spatial_attrs(ctx, list(kernel), ctx.info(0).shape[2:])
    total = ctx.emit("conv", centred(ctx, x, zx), centred(ctx, w, zw, -rank), group=ctx.attr("group", 1), **how)
    if ctx.input(8) is not None:
        total = ctx.emit("add", total, per_channel(ctx, ctx.required(8), rank))
    scale = ctx.emit("multiply", ctx.emit("reshape", sx, shape=()), sw)
    if as_int(scale.info.numel()) == 1:  # type: ignore[attr-defined]
        scale = ctx.emit("reshape", scale, shape=())
    else:
        scale = per_channel(ctx, scale, rank)
    return _requantized(ctx, total, scale, sy, zy)


QUANTIZE: Rows = {
    "ConvInteger": [(10, _conv_integer)],
    "MatMulInteger": [(10, _matmul_integer)],
    "QLinearMatMul": [(10, _qlinear_matmul)],
    "QLinearConv": [(10, _qlinear_conv)],
    "QuantizeLinear": [(10, _quantize)],
    "DequantizeLinear": [(10, _dequantize)],
    "DynamicQuantizeLinear": [(11, _dynamic_quantize)],
}
