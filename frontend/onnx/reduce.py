"""Reductions, arg-reductions, running sums, softmax and normalisations."""

from __future__ import annotations

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows
from everport.frontend.onnx.unary import like
from everport.relax.expr import RelaxExpr
from everport.relax.op.base import normalize_axis
from everport.tir.expr import Const, Expr


def _axes(ctx: NodeContext) -> tuple[int, ...] | None:
    """The axes, normalised; all where none are given; None for "reduce nothing"."""
    rank = ctx.info(0).rank
    axes = ctx.attr("axes")
    if ctx.input(1) is not None:
        axes = ctx.int_list(1, "the axes of a reduction")
    if not axes:
        if ctx.attr("noop_with_empty_axes", 0):
            return None
        return tuple(range(rank))
    return tuple(sorted(normalize_axis(a, rank) for a in axes))


def _reduce(
    op: str, before: str | None = None, after: str | None = None, numeric_bool: bool = False
) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        x, axes = ctx.required(0), _axes(ctx)
        how = {"keepdims": ctx.attr("keepdims", 1)}
        if before == "square":
            x = ctx.emit("multiply", x, x)
        elif before is not None:
            x = ctx.emit(before, x)
        if axes is not None:
            name = op
            if numeric_bool and ctx.info(0).dtype.is_bool:
                name = {"reduce_max": "reduce_any", "reduce_min": "reduce_all"}[op]
            x = ctx.emit(name, x, axes=axes, **how)
        return x if after is None else _finish(ctx, after, x)

    return convert


def _finish(ctx: NodeContext, after: str, x: RelaxExpr) -> RelaxExpr:
    t = ctx.info(0).dtype
    if t.is_float:
        return ctx.emit(after, x)
    return as_dtype(ctx, ctx.emit(after, as_dtype(ctx, x, "f64")), t.name)


def _log_sum_exp(ctx: NodeContext) -> Result:
    """max + log(sum(exp(x - max))): no overflow. An infinite maximum is not subtracted."""
    x, axes, t = ctx.required(0), _axes(ctx), ctx.info(0).dtype
    wide = x if t.is_float else as_dtype(ctx, x, "f64")
    if axes is None:
        return x
    top = ctx.emit("reduce_max", wide, axes=axes, keepdims=1)
    finite = ctx.emit("where", ctx.emit("isinf", top), like(ctx, 0, top), top)
    total = ctx.emit("reduce_sum", ctx.emit("exp", ctx.emit("subtract", wide, finite)), axes=axes, keepdims=1)
    result = ctx.emit("add", ctx.emit("log", total), finite)
    if not ctx.attr("keepdims", 1):
        shape = tuple(d for k, d in enumerate(ctx.info(0).shape) if k not in axes)
        result = ctx.emit("reshape", result, shape=shape)
    return result if t.is_float else as_dtype(ctx, result, t.name)


def _arg(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        axis = normalize_axis(ctx.attr("axis", 0), ctx.info(0).rank)
        keep, last = ctx.attr("keepdims", 1), ctx.attr("select_last_index", 0)
        return ctx.emit(op, ctx.required(0), axes=(axis,), keepdims=keep, last=last)

    return convert


def _scan(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        x, rank = ctx.required(0), ctx.info(0).rank
        how = {"exclusive": ctx.attr("exclusive", 0), "reverse": ctx.attr("reverse", 0)}
        if ctx.shape_value(1) is not None:
            axis = normalize_axis(ctx.int_scalar(1, f"the axis of {op}"), rank)
            return ctx.emit(op, x, axis=axis, **how)
        # The axis is data: the sums along every axis, of which the given one is chosen.
        axis_value = ctx.emit("reshape", ctx.required(1), shape=())
        result = ctx.emit(op, x, axis=0, **how)
        for axis in range(1, rank):
            chosen = [ctx.emit("equal", axis_value, ctx.constant(a, ctx.info(1).dtype)) for a in (axis, axis - rank)]
            result = ctx.emit("where", ctx.emit("logical_or", *chosen), ctx.emit(op, x, axis=axis, **how), result)
        return result

    return convert


def _softmax(op: str) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        return ctx.emit(op, ctx.required(0), axis=normalize_axis(ctx.attr("axis", -1), ctx.info(0).rank))

    return convert


def coerced(ctx: NodeContext, axis: int) -> tuple[RelaxExpr, tuple[Expr, ...]]:
    """The first input as a matrix split before `axis`, and its shape before."""
    shape = ctx.info(0).shape
    rows: Expr = Const(1)
    columns: Expr = Const(1)
    for d in shape[:axis]:
        rows = rows * d
    for d in shape[axis:]:
        columns = columns * d
    return ctx.emit("reshape", ctx.required(0), shape=(rows, columns)), tuple(shape)


def _softmax_old(op: str) -> Converter:
    """Opsets before 13 see the input as a matrix."""

    def convert(ctx: NodeContext) -> Result:
        axis = normalize_axis(ctx.attr("axis", 1), ctx.info(0).rank)
        matrix, shape = coerced(ctx, axis)
        return ctx.emit("reshape", ctx.emit(op, matrix, axis=1), shape=shape)

    return convert


def _hardmax_of(ctx: NodeContext, x: RelaxExpr, axis: int) -> RelaxExpr:
    shape = x.info.shape  # type: ignore[attr-defined]
    position = ctx.emit("argmax", x, axes=(axis,), keepdims=0, last=0)
    values = ctx.constant(np.array([0, 1]).astype(ctx.info(0).dtype.numpy))
    return ctx.emit("one_hot", position, values, axis=axis, depth=shape[axis])


def _hardmax(ctx: NodeContext) -> Result:
    return _hardmax_of(ctx, ctx.required(0), normalize_axis(ctx.attr("axis", -1), ctx.info(0).rank))


def _hardmax_old(ctx: NodeContext) -> Result:
    matrix, shape = coerced(ctx, normalize_axis(ctx.attr("axis", 1), ctx.info(0).rank))
    return ctx.emit("reshape", _hardmax_of(ctx, matrix, 1), shape=shape)


def per_channel(ctx: NodeContext, v: RelaxExpr, rank: int) -> RelaxExpr:
    """A vector of channels shaped to broadcast along axis 1 of a tensor of `rank`."""
    return ctx.emit("reshape", v, shape=(v.info.shape[0], *(Const(1) for _ in range(rank - 2))))  # type: ignore[attr-defined]


def _batch_norm(ctx: NodeContext) -> Result:
    if ctx.opset < 14 and ctx.num_outputs() > 1:
        raise ctx.unsupported("batch normalization in training mode before opset 14")
    if not ctx.attr("training_mode", 0):
        return _batch_normalized(ctx, ctx.required(3), ctx.required(4))
    mean, variance = _batch_statistics(ctx)
    momentum = ctx.attr("momentum", 0.9)
    running = []
    for k, current in ((3, mean), (4, variance)):
        before = ctx.required(k)
        kept = ctx.emit("multiply", before, like(ctx, momentum, before))
        current = as_dtype(ctx, current, ctx.info(k).dtype.name)
        running.append(ctx.emit("add", kept, ctx.emit("multiply", current, like(ctx, 1 - momentum, before))))
    return [_batch_normalized(ctx, mean, variance), *running]


def _batch_statistics(ctx: NodeContext) -> tuple[RelaxExpr, RelaxExpr]:
    """Mean and (biased) variance of each channel, in 32 bits or more."""
    x = ctx.required(0) if ctx.info(0).dtype.bits >= 32 else as_dtype(ctx, ctx.required(0), "f32")
    axes = tuple(k for k in range(ctx.info(0).rank) if k != 1)
    mean = ctx.emit("reduce_mean", x, axes=axes, keepdims=1)
    centred = ctx.emit("subtract", x, mean)
    variance = ctx.emit("reduce_mean", ctx.emit("multiply", centred, centred), axes=axes, keepdims=0)
    return ctx.emit("reshape", mean, shape=(ctx.info(0).shape[1],)), variance


def _batch_normalized(ctx: NodeContext, mean: RelaxExpr, variance: RelaxExpr) -> RelaxExpr:
    x, rank, scale, bias = ctx.required(0), ctx.info(0).rank, ctx.required(1), ctx.required(2)
    t = ctx.info(0).dtype.name
    inner = as_dtype(ctx, variance, t)
    inverse = ctx.emit("rsqrt", ctx.emit("add", inner, like(ctx, ctx.attr("epsilon", 1e-5))))
    factor = ctx.emit("multiply", as_dtype(ctx, scale, t), inverse)
    shift = ctx.emit("subtract", as_dtype(ctx, bias, t), ctx.emit("multiply", as_dtype(ctx, mean, t), factor))
    if rank < 2:
        return ctx.emit("add", ctx.emit("multiply", x, factor), shift)
    return ctx.emit("add", ctx.emit("multiply", x, per_channel(ctx, factor, rank)), per_channel(ctx, shift, rank))


def normalized(ctx: NodeContext, x: RelaxExpr, axes: tuple[int, ...], epsilon: float) -> RelaxExpr:
    """(x - mean) / sqrt(variance + epsilon) over axes."""
    mean = ctx.emit("reduce_mean", x, axes=axes, keepdims=1)
    centred = ctx.emit("subtract", x, mean)
    variance = ctx.emit("reduce_mean", ctx.emit("multiply", centred, centred), axes=axes, keepdims=1)
    return ctx.emit("multiply", centred, ctx.emit("rsqrt", ctx.emit("add", variance, like(ctx, epsilon, x))))


def _instance_norm(ctx: NodeContext) -> Result:
    rank = ctx.info(0).rank
    y = normalized(ctx, ctx.required(0), tuple(range(2, rank)), ctx.attr("epsilon", 1e-5))
    scaled = ctx.emit("multiply", y, per_channel(ctx, ctx.required(1), rank))
    return ctx.emit("add", scaled, per_channel(ctx, ctx.required(2), rank))


def _group_norm(ctx: NodeContext) -> Result:
    shape, groups = ctx.info(0).shape, ctx.attr("num_groups")
    grouped = (shape[0], Const(groups), shape[1] // groups, *shape[2:])
    t = ctx.info(0).dtype.name
    wide = "f32" if ctx.attr("stash_type", 1) == 1 and ctx.opset >= 21 and ctx.info(0).dtype.bits < 32 else t
    x = as_dtype(ctx, ctx.emit("reshape", ctx.required(0), shape=grouped), wide)
    y = as_dtype(ctx, normalized(ctx, x, tuple(range(2, len(grouped))), ctx.attr("epsilon", 1e-5)), t)
    scale, bias = ctx.required(1), ctx.required(2)
    if ctx.opset < 21:  # one scale a group
        scale, bias = (ctx.emit("reshape", v, shape=(Const(groups), *(Const(1) for _ in grouped[2:]))) for v in (scale, bias))
        y = ctx.emit("add", ctx.emit("multiply", y, scale), bias)
        return ctx.emit("reshape", y, shape=tuple(shape))
    y = ctx.emit("reshape", y, shape=tuple(shape))
    rank = len(shape)
    return ctx.emit("add", ctx.emit("multiply", y, per_channel(ctx, scale, rank)), per_channel(ctx, bias, rank))


def _layer_norm(ctx: NodeContext) -> Result:
    axis = normalize_axis(ctx.attr("axis", -1), ctx.info(0).rank)
    if ctx.attr("stash_type", 1) != 1 and ctx.info(0).dtype.bits < 32:
        raise ctx.unsupported("layer normalization that keeps its statistics in 16 bits")
    args = [ctx.required(0), ctx.required(1)] + ([ctx.required(2)] if ctx.input(2) is not None else [])
    stats = int(ctx.wants_output(1) or ctx.wants_output(2))
    how = {"axis": axis, "epsilon": float(ctx.attr("epsilon", 1e-5)), "stats": stats}
    return list(ctx.emit_many("layer_norm", *args, **how)) if stats else ctx.emit("layer_norm", *args, **how)


def _rms_norm(ctx: NodeContext) -> Result:
    axis = normalize_axis(ctx.attr("axis", -1), ctx.info(0).rank)
    return ctx.emit("rms_norm", ctx.required(0), ctx.required(1), axis=axis, epsilon=float(ctx.attr("epsilon", 1e-5)))


def _lp_norm(ctx: NodeContext) -> Result:
    x, p = ctx.required(0), ctx.attr("p", 2)
    how = {"axes": (normalize_axis(ctx.attr("axis", -1), ctx.info(0).rank),), "keepdims": 1}
    if p == 1:
        size = ctx.emit("reduce_sum", ctx.emit("abs", x), **how)
    else:
        size = ctx.emit("sqrt", ctx.emit("reduce_sum", ctx.emit("multiply", x, x), **how))
    zero = ctx.emit("equal", size, like(ctx, 0))
    return ctx.emit("where", zero, like(ctx, 0), ctx.emit("divide", x, size))


def _mean_variance(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    axes = tuple(normalize_axis(a, ctx.info(0).rank) for a in ctx.attr("axes", [0, 2, 3]))
    mean = ctx.emit("reduce_mean", x, axes=axes, keepdims=1)
    square = ctx.emit("reduce_mean", ctx.emit("multiply", x, x), axes=axes, keepdims=1)
    deviation = ctx.emit("sqrt", ctx.emit("subtract", square, ctx.emit("multiply", mean, mean)))
    return ctx.emit("divide", ctx.emit("subtract", x, mean), ctx.emit("add", deviation, like(ctx, 1e-9)))


def _lrn(ctx: NodeContext) -> Result:
    """x / (bias + alpha/size * sum of squares over a window of channels) ** beta, the sum by an average pool over channels."""
    x, size = ctx.required(0), ctx.attr("size")
    alpha, beta, bias = ctx.attr("alpha", 1e-4), ctx.attr("beta", 0.75), ctx.attr("bias", 1.0)
    shape = ctx.info(0).shape
    rest: Expr = Const(1)
    for d in shape[2:]:
        rest = rest * d
    squares = ctx.emit("reshape", ctx.emit("multiply", x, x), shape=(shape[0], Const(1), shape[1], rest))
    before, after = (size - 1) // 2, size // 2
    mean = ctx.emit(
        "average_pool", squares, kernel=(size, 1), strides=(1, 1), dilations=(1, 1), before=(before, 0), after=(after, 0),
        ceil_mode=0, count_include_pad=1,
    )  # fmt: skip
    total = ctx.emit("reshape", mean, shape=tuple(shape))
    base = ctx.emit("add", ctx.emit("multiply", total, like(ctx, alpha)), like(ctx, bias))
    return ctx.emit("divide", x, ctx.emit("power", base, like(ctx, beta)))


REDUCE: Rows = {
    "ReduceSum": [(1, _reduce("reduce_sum"))],
    "ReduceProd": [(1, _reduce("reduce_prod"))],
    "ReduceMean": [(1, _reduce("reduce_mean"))],
    "ReduceMax": [(1, _reduce("reduce_max", numeric_bool=True))],
    "ReduceMin": [(1, _reduce("reduce_min", numeric_bool=True))],
    "ReduceL1": [(1, _reduce("reduce_sum", before="abs"))],
    "ReduceL2": [(1, _reduce("reduce_sum", before="square", after="sqrt"))],
    "ReduceSumSquare": [(1, _reduce("reduce_sum", before="square"))],
    "ReduceLogSum": [(1, _reduce("reduce_sum", after="log"))],
    "ReduceLogSumExp": [(1, _log_sum_exp)],
    "ArgMax": [(1, _arg("argmax"))],
    "ArgMin": [(1, _arg("argmin"))],
    "CumSum": [(11, _scan("cumsum"))],
    "CumProd": [(26, _scan("cumprod"))],
    "Softmax": [(1, _softmax_old("softmax")), (13, _softmax("softmax"))],
    "LogSoftmax": [(1, _softmax_old("log_softmax")), (13, _softmax("log_softmax"))],
    "Hardmax": [(1, _hardmax_old), (13, _hardmax)],
    "BatchNormalization": [(7, _batch_norm)],
    "InstanceNormalization": [(6, _instance_norm)],
    "GroupNormalization": [(18, _group_norm)],
    "LayerNormalization": [(17, _layer_norm)],
    "RMSNormalization": [(23, _rms_norm)],
    "LpNormalization": [(1, _lp_norm)],
    "MeanVarianceNormalization": [(9, _mean_variance)],
    "LRN": [(1, _lrn)],
}
