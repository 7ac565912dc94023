"""Convolution, pooling, matrix products, resampling, and losses."""

from __future__ import annotations

import math

import numpy as np

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


def kernel_extents(ctx: NodeContext) -> list[int]:
    if ctx.attr("kernel_shape"):
        return list(ctx.attr("kernel_shape"))
    found = [as_int(d) for d in ctx.info(1).shape[2:]]
    if any(k is None for k in found):
        raise ctx.unsupported("a convolution whose kernel has symbolic extents")
    return [int(k) for k in found if k is not None]


def _conv(ctx: NodeContext) -> Result:
    x, w = ctx.required(0), ctx.required(1)
    how = spatial_attrs(ctx, kernel_extents(ctx), ctx.info(0).shape[2:])
    y = ctx.emit("conv", x, w, group=ctx.attr("group", 1), **how)
    if ctx.input(2) is not None:
        y = ctx.emit("add", y, per_channel(ctx, ctx.required(2), ctx.info(0).rank))
    return y


def _conv_transpose(ctx: NodeContext) -> Result:
    x, w = ctx.required(0), ctx.required(1)
    extents, kernel = ctx.info(0).shape[2:], kernel_extents(ctx)
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


def _grid_sample(ctx: NodeContext) -> Result:
    old_names = {"bilinear": "linear", "bicubic": "cubic"}
    mode = ctx.attr("mode", "linear")
    mode = old_names.get(mode, mode)
    padding, align = ctx.attr("padding_mode", "zeros"), ctx.attr("align_corners", 0)
    if mode not in ("nearest", "linear", "cubic") or padding not in ("zeros", "border", "reflection"):
        raise ctx.unsupported(f"the mode {mode!r} with padding {padding!r}")
    return ctx.emit("grid_sample", ctx.required(0), ctx.required(1), mode=mode, padding=padding, align_corners=align)


NN: Rows = {
    "Conv": [(1, _conv)],
    "ConvTranspose": [(1, _conv_transpose)],
    "MaxPool": [(1, _pool("max_pool"))],
    "AveragePool": [(1, _pool("average_pool"))],
    "LpPool": [(2, _pool("lp_pool"))],
    "GlobalMaxPool": [(1, _global("reduce_max"))],
    "GlobalAveragePool": [(1, _global("reduce_mean"))],
    "GlobalLpPool": [(2, _global_lp)],
    "MatMul": [(1, _matmul)],
    "Gemm": [(1, _gemm)],
    "Einsum": [(12, _einsum)],
    "Resize": [(10, _resize)],
    "Upsample": [(7, _resize)],
    "GridSample": [(16, _grid_sample)],
}
