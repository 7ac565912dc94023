"""Convolution, pooling, matrix products, resampling, and losses."""

from __future__ import annotations

import math

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows
from everport.frontend.onnx.reduce import per_channel
from everport.frontend.onnx.unary import like
from everport.relax.expr import RelaxExpr
from everport.relax.op.base import normalize_axis
from everport.tir.expr import Const, Expr, as_int, const, maximum


def spatial_attrs(ctx: NodeContext, kernel: list[int], extents: tuple[Expr, ...]) -> dict[str, tuple]:
    """strides, dilations, before and after of a window operator, auto_pad worked out."""
    rank = len(kernel)
    strides = ctx.attr("strides") or [1] * rank
    dilations = ctx.attr("dilations") or [1] * rank
    pads = ctx.attr("pads") or [0] * (2 * rank)
    auto = ctx.attr("auto_pad", "NOTSET")
    before: list[Expr | int] = list(pads[:rank])
    after: list[Expr | int] = list(pads[rank:])
    simplify = ctx.importer.builder.ctx.simplify
    if auto == "VALID":
        before, after = [0] * rank, [0] * rank
    elif auto in ("SAME_UPPER", "SAME_LOWER"):
        before, after = [], []
        for d, k, s, dl in zip(extents, kernel, strides, dilations, strict=True):
            out = (d + (s - 1)) // s
            total = simplify(maximum((out - 1) * s + ((k - 1) * dl + 1) - d, 0))
            half = simplify(total // 2)
            rest = simplify(total - half)
            low, high = (half, rest) if auto == "SAME_UPPER" else (rest, half)
            before.append(low if as_int(low) is None else as_int(low))  # type: ignore[arg-type]
            after.append(high if as_int(high) is None else as_int(high))  # type: ignore[arg-type]
    elif auto not in ("NOTSET", ""):
        raise ctx.unsupported(f"auto_pad {auto!r}")
    return {"strides": tuple(strides), "dilations": tuple(dilations), "before": tuple(before), "after": tuple(after)}


def _kernel(ctx: NodeContext) -> list[int]:
    if ctx.attr("kernel_shape"):
        return list(ctx.attr("kernel_shape"))
    found = [as_int(d) for d in ctx.info(1).shape[2:]]
    if any(k is None for k in found):
        raise ctx.unsupported("a convolution whose kernel has symbolic extents")
    return [int(k) for k in found if k is not None]


def _conv(ctx: NodeContext) -> Result:
    x, w = ctx.required(0), ctx.required(1)
    how = spatial_attrs(ctx, _kernel(ctx), ctx.info(0).shape[2:])
    y = ctx.emit("conv", x, w, group=ctx.attr("group", 1), **how)
    if ctx.input(2) is not None:
        y = ctx.emit("add", y, per_channel(ctx, ctx.required(2), ctx.info(0).rank))
    return y


def _conv_transpose(ctx: NodeContext) -> Result:
    x, w = ctx.required(0), ctx.required(1)
    extents, kernel = ctx.info(0).shape[2:], _kernel(ctx)
    rank = len(kernel)
    strides = ctx.attr("strides") or [1] * rank
    dilations = ctx.attr("dilations") or [1] * rank
    extra = ctx.attr("output_padding") or [0] * rank
    pads, auto, group = ctx.attr("pads") or [0] * (2 * rank), ctx.attr("auto_pad", "NOTSET"), ctx.attr("group", 1)
    wanted = ctx.attr("output_shape")
    simplify = ctx.importer.builder.ctx.simplify
    out: list[Expr] = []
    before: list[Expr | int] = []
    for k in range(rank):
        full = (extents[k] - 1) * strides[k] + extra[k] + ((kernel[k] - 1) * dilations[k] + 1)
        if wanted or auto in ("SAME_UPPER", "SAME_LOWER"):
            size = const(wanted[-rank:][k]) if wanted else extents[k] * strides[k]
            total = simplify(maximum(full - size, 0))
            half = simplify(total // 2)
            low = half if auto != "SAME_LOWER" else simplify(total - half)
            if auto == "SAME_UPPER" or auto == "SAME_LOWER" or wanted:
                before.append(low if as_int(low) is None else as_int(low))  # type: ignore[arg-type]
            out.append(size)
        else:
            before.append(pads[k])
            out.append(simplify(full - pads[k] - pads[k + rank]))
    y = ctx.emit(
        "conv_transpose", x, w, strides=tuple(strides), dilations=tuple(dilations), before=tuple(before), group=group,
        output_shape=tuple(out),
    )  # fmt: skip
    if ctx.input(2) is not None:
        y = ctx.emit("add", y, per_channel(ctx, ctx.required(2), ctx.info(0).rank))
    return y


def _pool(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        kernel = list(ctx.attr("kernel_shape"))
        how = {"kernel": tuple(kernel), "ceil_mode": ctx.attr("ceil_mode", 0), **spatial_attrs(ctx, kernel, ctx.info(0).shape[2:])}
        if op == "average_pool":
            how["count_include_pad"] = ctx.attr("count_include_pad", 0)
        if op == "lp_pool":
            how["p"] = ctx.attr("p", 2)
        if op == "max_pool" and ctx.wants_output(1):
            return list(ctx.emit_many(op, ctx.required(0), positions=1, column_major=ctx.attr("storage_order", 0), **how))
        return ctx.emit(op, ctx.required(0), **how)

    return convert


def _global(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        return ctx.emit(op, ctx.required(0), axes=tuple(range(2, ctx.info(0).rank)), keepdims=1)

    return convert


def _global_lp(ctx: NodeContext) -> Result:
    x, p = ctx.emit("abs", ctx.required(0)), ctx.attr("p", 2)
    total = ctx.emit("reduce_sum", ctx.emit("power", x, like(ctx, p)), axes=tuple(range(2, ctx.info(0).rank)), keepdims=1)
    return ctx.emit("power", total, like(ctx, 1 / p))


def matmul(ctx: NodeContext, a: RelaxExpr, b: RelaxExpr, **how: str) -> RelaxExpr:
    """numpy's matmul, vectors included."""
    left, right = list(a.info.shape), list(b.info.shape)  # type: ignore[attr-defined]
    row, column = len(left) == 1, len(right) == 1
    if row:
        a = ctx.emit("reshape", a, shape=(Const(1), *left))
    if column:
        b = ctx.emit("reshape", b, shape=(*right, Const(1)))
    y = ctx.emit("matmul", a, b, **how)
    if not row and not column:
        return y
    shape = list(y.info.shape)  # type: ignore[attr-defined]
    if row:
        del shape[-2]
    if column:
        del shape[-1]
    return ctx.emit("reshape", y, shape=tuple(shape))


def _matmul(ctx: NodeContext) -> Result:
    return matmul(ctx, ctx.required(0), ctx.required(1))


def _gemm(ctx: NodeContext) -> Result:
    a, b = ctx.required(0), ctx.required(1)
    if ctx.attr("transA", 0):
        a = ctx.emit("transpose", a, axes=(1, 0))
    if ctx.attr("transB", 0):
        b = ctx.emit("transpose", b, axes=(1, 0))
    y = ctx.emit("matmul", a, b)
    alpha, beta = ctx.attr("alpha", 1.0), ctx.attr("beta", 1.0)
    if alpha != 1.0:
        y = ctx.emit("multiply", y, like(ctx, alpha))
    c = ctx.input(2)
    if c is not None:
        y = ctx.emit("add", y, c if beta == 1.0 else ctx.emit("multiply", c, like(ctx, beta)))
    return y


def _einsum(ctx: NodeContext) -> Result:
    """Each operand is summed over letters of its own and brought to all letters; products follow pairwise as matmuls of
    (batch, left, contracted) x (batch, contracted, right)."""
    equation = ctx.attr("equation").replace(" ", "")
    terms, arrow, result = equation.partition("->")
    names = terms.split(",")
    operands = [ctx.required(k) for k in range(len(names))]
    ranks = [len(o.info.shape) for o in operands]  # type: ignore[attr-defined]
    spread = max((r - len(n.replace("...", "")) for n, r in zip(names, ranks, strict=True) if "..." in n), default=0)
    letters = "".join(chr(ord("A") + k) for k in range(spread)) if spread else ""
    if any(c in equation for c in letters):
        letters = "".join(c for c in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" if c not in equation)[:spread]

    def spelled(name: str, rank: int) -> str:
        own = rank - len(name.replace("...", ""))
        return name.replace("...", letters[len(letters) - own :] if own else "")

    names = [spelled(n, r) for n, r in zip(names, ranks, strict=True)]
    if not arrow:
        once = sorted(c for c in set("".join(names)) if "".join(names).count(c) == 1 and c not in letters)
        result = letters + "".join(once)
    else:
        result = result.replace("...", letters)
    values = [_diagonal(ctx, o, n) for o, n in zip(operands, names, strict=True)]
    current, name = values[0]
    for k in range(1, len(values)):
        rest = set(result).union(*(set(n) for _, n in values[k + 1 :]))
        current, name = _contract(ctx, current, name, *values[k], rest)
    extra = [k for k, c in enumerate(name) if c not in result]
    if extra:
        current = ctx.emit("reduce_sum", current, axes=tuple(extra), keepdims=0)
        name = "".join(c for c in name if c in result)
    return ctx.emit("transpose", current, axes=tuple(name.index(c) for c in result))


def _diagonal(ctx: NodeContext, x: RelaxExpr, name: str) -> tuple[RelaxExpr, str]:
    """Repeated letters of one operand by masking with an identity and summing."""
    while len(set(name)) < len(name):
        c = next(c for c in name if name.count(c) > 1)
        i, j = name.index(c), name.index(c, name.index(c) + 1)
        shape = x.info.shape  # type: ignore[attr-defined]
        eye = ctx.emit("eye", shape=(shape[i], shape[j]), k=0, dtype=x.info.dtype.name)  # type: ignore[attr-defined]
        wide = tuple(shape[k] if k in (i, j) else Const(1) for k in range(len(name)))
        masked = ctx.emit("multiply", x, ctx.emit("reshape", eye, shape=wide))
        x = ctx.emit("reduce_sum", masked, axes=(j,), keepdims=0)
        name = name[:j] + name[j + 1 :]
    return x, name


def _contract(
    ctx: NodeContext, a: RelaxExpr, an: str, b: RelaxExpr, bn: str, kept: set[str]
) -> tuple[RelaxExpr, str]:
    for _ in range(2):  # letters of one side alone that nothing needs are summed first
        extra = [k for k, c in enumerate(an) if c not in bn and c not in kept]
        if extra:
            a = ctx.emit("reduce_sum", a, axes=tuple(extra), keepdims=0)
            an = "".join(c for k, c in enumerate(an) if k not in extra)
        a, an, b, bn = b, bn, a, an
    batch = [c for c in an if c in bn and c in kept]
    inner = [c for c in an if c in bn and c not in kept]
    left, right = [c for c in an if c not in bn], [c for c in bn if c not in an]
    sizes = {**dict(zip(bn, b.info.shape, strict=True)), **dict(zip(an, a.info.shape, strict=True))}  # type: ignore[attr-defined]

    def size(cs: list[str]) -> Expr:
        total: Expr = Const(1)
        for c in cs:
            total = total * sizes[c]
        return total

    x = ctx.emit("transpose", a, axes=tuple(an.index(c) for c in [*batch, *left, *inner]))
    y = ctx.emit("transpose", b, axes=tuple(bn.index(c) for c in [*batch, *inner, *right]))
    x = ctx.emit("reshape", x, shape=(size(batch), size(left), size(inner)))
    y = ctx.emit("reshape", y, shape=(size(batch), size(inner), size(right)))
    z = ctx.emit("matmul", x, y)
    name = "".join([*batch, *left, *right])
    return ctx.emit("reshape", z, shape=tuple(sizes[c] for c in name)), name


def _resize(ctx: NodeContext) -> Result:
    x, rank = ctx.required(0), ctx.info(0).rank
    if ctx.attr("antialias", 0):
        raise ctx.unsupported("a resize with antialias")
    upsample = ctx.node.op_type == "Upsample"
    old = upsample or ctx.opset < 11
    mode = ctx.attr("mode", "nearest")
    coordinate = "asymmetric" if old else ctx.attr("coordinate_transformation_mode", "half_pixel")
    axes = [normalize_axis(a, rank) for a in ctx.attr("axes") or range(rank)]
    shape = ctx.info(0).shape
    out: list[Expr] = list(shape)
    scales: list[float | None] = [1.0] * rank
    scale_input = 1 if old else 2
    given = ctx.const_value(scale_input) if not (upsample and ctx.opset < 9) else np.asarray(ctx.attr("scales"))
    simplify = ctx.importer.builder.ctx.simplify
    if given is not None and given.size:
        for k, a in enumerate(axes):
            scale = float(given.reshape(-1)[k])
            scales[a] = scale
            out[a] = _scaled(ctx, shape[a], scale)
    elif ctx.input(3) is not None and not old:
        sizes = ctx.shape_list(3, "the sizes of a resize")
        policy = ctx.attr("keep_aspect_ratio_policy", "stretch")
        for k, a in enumerate(axes):
            out[a] = sizes[k]
            known, extent = as_int(sizes[k]), as_int(shape[a])
            scales[a] = known / extent if known is not None and extent else None
        if policy != "stretch":
            if any(scales[a] is None for a in axes):
                raise ctx.unsupported("a resize that keeps the aspect ratio of symbolic sizes")
            pick = (min if policy == "not_larger" else max)(float(scales[a] or 0) for a in axes)
            for a in axes:
                scales[a] = pick
                out[a] = const(math.floor(pick * (as_int(shape[a]) or 0) + 0.5))
    else:
        raise ctx.unsupported("a resize whose scales are computed at run time")
    roi: tuple[float, ...] = ()
    if coordinate == "tf_crop_and_resize":
        values = ctx.const_value(1)
        if values is None:
            raise ctx.unsupported("a resize whose region is computed at run time")
        flat, half = [float(v) for v in values.reshape(-1)], len(axes)
        starts, ends = [0.0] * rank, [1.0] * rank
        for k, a in enumerate(axes):
            starts[a], ends[a] = flat[k], flat[k + half]
        roi = (*starts, *ends)
    return ctx.emit(
        "resize", x, out=tuple(simplify(o) for o in out), scales=_scales(scales), mode=mode, coordinate=coordinate,
        nearest="floor" if old else ctx.attr("nearest_mode", "round_prefer_floor"), cubic_a=float(ctx.attr("cubic_coeff_a", -0.75)),
        exclude_outside=ctx.attr("exclude_outside", 0), extrapolation=float(ctx.attr("extrapolation_value", 0.0)), roi=roi,
    )  # fmt: skip


def _scales(scales: list[float | None]) -> tuple:
    return tuple("ratio" if s is None else s for s in scales)


def _scaled(ctx: NodeContext, extent: Expr, scale: float) -> Expr:
    """floor(extent * scale)."""
    known = as_int(extent)
    if known is not None:
        return const(math.floor(known * scale))
    if scale == int(scale):
        return extent * int(scale)
    if 1 / scale == int(1 / scale):
        return extent // int(1 / scale)
    raise ctx.unsupported("a fractional scale of a symbolic dimension")


def _quantize(ctx: NodeContext) -> Result:
    x, scale, zero = ctx.required(0), ctx.required(1), ctx.input(2)
    t = "u8" if zero is None else ctx.info(2).dtype.name
    if zero is None and ctx.attr("output_dtype", 0):
        raise ctx.unsupported("a quantization that names its type by attribute")
    if t not in ("u8", "i8", "u16", "i16", "i32", "i4", "u4"):
        raise ctx.unsupported(f"a quantization to {t}")
    source = ctx.info(0).dtype.name
    if source not in ("f32", "f64", "i32"):
        raise ctx.unsupported(f"a quantization of {source}")
    wide = as_dtype(ctx, x, "f32") if source == "i32" else x
    scale, zero = _spread(ctx, scale), (None if zero is None else _spread(ctx, zero))
    q = ctx.emit("round", ctx.emit("divide", wide, scale))
    if zero is not None:
        q = ctx.emit("add", q, as_dtype(ctx, zero, "f32"))
    return saturated(ctx, q, t)


def saturated(ctx: NodeContext, x: RelaxExpr, t: str) -> RelaxExpr:
    """A float rounded already, clamped and cast to an integer type."""
    from_type = {"u8": (0, 255), "i8": (-128, 127), "u16": (0, 65535), "i16": (-32768, 32767), "i4": (-8, 7), "u4": (0, 15)}
    if t in from_type:
        low, high = from_type[t]
        x = ctx.emit("minimum", ctx.emit("maximum", x, like(ctx, low, x)), like(ctx, high, x))
    return ctx.emit("cast", x, to=t)


def _spread(ctx: NodeContext, v: RelaxExpr) -> RelaxExpr:
    """A scale or zero point shaped to broadcast over the first input: per tensor, per axis, or per block."""
    rank, shape = ctx.info(0).rank, v.info.shape  # type: ignore[attr-defined]
    block = ctx.attr("block_size", 0)
    if block:
        axis = normalize_axis(ctx.attr("axis", 1), rank)
        wide = (*shape[: axis + 1], Const(1), *shape[axis + 1 :])
        grown = (*shape[: axis + 1], Const(block), *shape[axis + 1 :])
        spread = ctx.emit("broadcast_to", ctx.emit("reshape", v, shape=wide), shape=grown)
        joined = ctx.emit("reshape", spread, shape=(*shape[:axis], shape[axis] * block, *shape[axis + 1 :]))
        extent = ctx.info(0).shape[axis]
        stops = tuple(extent if k == axis else d for k, d in enumerate((*shape[:axis], shape[axis] * block, *shape[axis + 1 :])))
        return ctx.emit("slice", joined, starts=tuple(Const(0) for _ in stops), stops=stops, steps=tuple(1 for _ in stops))
    if len(shape) == 0 or (len(shape) == 1 and as_int(shape[0]) == 1):
        return ctx.emit("reshape", v, shape=())
    axis = normalize_axis(ctx.attr("axis", 1), rank)
    return ctx.emit("reshape", v, shape=tuple(shape[0] if k == axis else Const(1) for k in range(rank)))


def _dequantize(ctx: NodeContext) -> Result:
    x, scale, zero = ctx.required(0), ctx.required(1), ctx.input(2)
    t = ctx.info(1).dtype.name
    if ctx.info(0).dtype.name not in ("u8", "i8", "u16", "i16", "i32", "i4", "u4") or t != "f32":
        raise ctx.unsupported(f"a dequantization of {ctx.info(0).dtype} by {t}")
    wide = as_dtype(ctx, x, "i32")
    if zero is not None:
        wide = ctx.emit("subtract", wide, as_dtype(ctx, _spread(ctx, zero), "i32"))
    return ctx.emit("multiply", as_dtype(ctx, wide, t), _spread(ctx, scale))


def _dynamic_quantize(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    axes = tuple(range(ctx.info(0).rank))
    low = ctx.emit("minimum", ctx.emit("reduce_min", x, axes=axes, keepdims=0), like(ctx, 0))
    high = ctx.emit("maximum", ctx.emit("reduce_max", x, axes=axes, keepdims=0), like(ctx, 0))
    scale = ctx.emit("divide", ctx.emit("subtract", high, low), like(ctx, 255))
    zero = saturated(ctx, ctx.emit("round", ctx.emit("divide", ctx.emit("neg", low), scale)), "u8")
    q = ctx.emit("add", ctx.emit("round", ctx.emit("divide", x, scale)), as_dtype(ctx, zero, "f32"))
    return [saturated(ctx, q, "u8"), scale, zero]


def centred(ctx: NodeContext, x: RelaxExpr, zero: RelaxExpr | None, axis: int | None = None) -> RelaxExpr:
    """x - zero in i32; a vector of zero points runs along `axis` (counted from the end)."""
    wide = as_dtype(ctx, x, "i32")
    if zero is None:
        return wide
    shape, rank = zero.info.shape, x.info.rank  # type: ignore[attr-defined]
    if len(shape) == 1 and as_int(shape[0]) != 1 and axis is not None:
        zero = ctx.emit("reshape", zero, shape=tuple(shape[0] if k == rank + axis else Const(1) for k in range(rank)))
    elif len(shape) == 1:
        zero = ctx.emit("reshape", zero, shape=())
    return ctx.emit("subtract", wide, as_dtype(ctx, zero, "i32"))


def _matmul_integer(ctx: NodeContext) -> Result:
    a = centred(ctx, ctx.required(0), ctx.input(2), -2)
    b = centred(ctx, ctx.required(1), ctx.input(3), -1)
    return matmul(ctx, a, b)


def _conv_integer(ctx: NodeContext) -> Result:
    x = centred(ctx, ctx.required(0), ctx.input(2))
    w = centred(ctx, ctx.required(1), ctx.input(3), -ctx.info(1).rank)
    return ctx.emit("conv", x, w, group=ctx.attr("group", 1), **spatial_attrs(ctx, _kernel(ctx), ctx.info(0).shape[2:]))


def _requantized(ctx: NodeContext, total: RelaxExpr, scale: RelaxExpr, out_scale: RelaxExpr, out_zero: RelaxExpr) -> RelaxExpr:
    real = ctx.emit("divide", ctx.emit("multiply", as_dtype(ctx, total, "f32"), scale), as_dtype(ctx, out_scale, "f32"))
    q = ctx.emit("add", ctx.emit("round", real), as_dtype(ctx, out_zero, "f32"))
    return saturated(ctx, q, out_zero.info.dtype.name)  # type: ignore[attr-defined]


def _qlinear_matmul(ctx: NodeContext) -> Result:
    a, sa, za, b, sb, zb, sy, zy = (ctx.required(k) for k in range(8))
    if any(v.info.rank > 0 and as_int(v.info.numel()) != 1 for v in (sa, za, sb, zb, sy, zy)):  # type: ignore[attr-defined]
        raise ctx.unsupported("a quantized matmul with scales per row or column")
    total = matmul(ctx, centred(ctx, a, za), centred(ctx, b, zb))
    flat = [as_dtype(ctx, ctx.emit("reshape", v, shape=()), "f32") for v in (sa, sb, sy)]
    return _requantized(ctx, total, ctx.emit("multiply", flat[0], flat[1]), flat[2], ctx.emit("reshape", zy, shape=()))


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
    return _requantized(ctx, total, scale, ctx.emit("reshape", sy, shape=()), ctx.emit("reshape", zy, shape=()))


NN: Rows = {
    "Conv": [(1, _conv)],
    "ConvTranspose": [(1, _conv_transpose)],
    "ConvInteger": [(10, _conv_integer)],
    "MaxPool": [(1, _pool("max_pool"))],
    "AveragePool": [(1, _pool("average_pool"))],
    "LpPool": [(2, _pool("lp_pool"))],
    "GlobalMaxPool": [(1, _global("reduce_max"))],
    "GlobalAveragePool": [(1, _global("reduce_mean"))],
    "GlobalLpPool": [(2, _global_lp)],
    "MatMul": [(1, _matmul)],
    "MatMulInteger": [(10, _matmul_integer)],
    "QLinearMatMul": [(10, _qlinear_matmul)],
    "QLinearConv": [(10, _qlinear_conv)],
    "Gemm": [(1, _gemm)],
    "Einsum": [(12, _einsum)],
    "Resize": [(10, _resize)],
    "Upsample": [(7, _resize)],
    "QuantizeLinear": [(10, _quantize)],
    "DequantizeLinear": [(10, _dequantize)],
    "DynamicQuantizeLinear": [(11, _dynamic_quantize)],
}
