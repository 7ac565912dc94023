"""Operators on shapes and places: reshapes, slices, joins, fills, gathers and scatters."""

from __future__ import annotations

import numpy as np

from everport.frontend.onnx.binary import as_dtype, target_dtype
from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows, tensor_info
from everport.relax.expr import RelaxExpr
from everport.relax.op.base import normalize_axis
from everport.tir.expr import Const, Expr, as_int, const, ge, lt, maximum, minimum, select


def _reshape(ctx: NodeContext) -> Result:
    shape = list(ctx.info(0).shape)
    wanted = ctx.shape_list(1, "the shape of a reshape") if ctx.opset >= 5 else [const(d) for d in ctx.attr("shape")]
    if not ctx.attr("allowzero", 0):
        wanted = [shape[k] if as_int(d) == 0 and k < len(shape) else d for k, d in enumerate(wanted)]
    return reshaped(ctx, ctx.required(0), wanted)


def reshaped(ctx: NodeContext, x: RelaxExpr, wanted: list[Expr]) -> RelaxExpr:
    """A reshape; one -1 is worked out."""
    infer = ctx.importer.builder.ctx
    unknown = [k for k, d in enumerate(wanted) if as_int(d) == -1]
    if len(unknown) > 1:
        raise ctx.unsupported("a reshape with more than one -1")
    if unknown:
        rest: Expr = Const(1)
        for k, d in enumerate(wanted):
            if k not in unknown:
                rest = rest * d
        total = x.info.numel()  # type: ignore[attr-defined]
        if as_int(rest) == 0:
            raise ctx.unsupported("a reshape with -1 beside a dimension of 0")
        wanted[unknown[0]] = infer.simplify(total // rest)
    return ctx.emit("reshape", x, shape=tuple(infer.simplify(d) for d in wanted))


def _flatten(ctx: NodeContext) -> Result:
    shape, axis = ctx.info(0).shape, ctx.attr("axis", 1)
    axis = axis + len(shape) if axis < 0 else axis
    rows: Expr = Const(1)
    columns: Expr = Const(1)
    for d in shape[:axis]:
        rows = rows * d
    for d in shape[axis:]:
        columns = columns * d
    return ctx.emit("reshape", ctx.required(0), shape=(rows, columns))


def _given_axes(ctx: NodeContext) -> list[int] | None:
    if ctx.input(1) is not None:
        return ctx.int_list(1, "the axes")
    return ctx.attr("axes")


def _squeeze(ctx: NodeContext) -> Result:
    shape, axes = ctx.info(0).shape, _given_axes(ctx)
    if axes is None:
        if any(as_int(d) is None for d in shape):
            raise ctx.unsupported("a squeeze without axes on symbolic dimensions")
        dropped = {k for k, d in enumerate(shape) if as_int(d) == 1}
    else:
        dropped = {normalize_axis(a, len(shape)) for a in axes}
        for k in dropped:
            ctx.importer.builder.ctx.unify(shape[k], Const(1), "squeeze of a dimension that is not 1")
    return ctx.emit("reshape", ctx.required(0), shape=tuple(d for k, d in enumerate(shape) if k not in dropped))


def _unsqueeze(ctx: NodeContext) -> Result:
    shape, axes = ctx.info(0).shape, _given_axes(ctx) or []
    rank = len(shape) + len(axes)
    places = {normalize_axis(a, rank) for a in axes}
    rest = iter(shape)
    return ctx.emit("reshape", ctx.required(0), shape=tuple(Const(1) if k in places else next(rest) for k in range(rank)))


def _transpose(ctx: NodeContext) -> Result:
    rank = ctx.info(0).rank
    axes = ctx.attr("perm") or list(reversed(range(rank)))
    return ctx.emit("transpose", ctx.required(0), axes=tuple(normalize_axis(a, rank) for a in axes))


def _concat(ctx: NodeContext) -> Result:
    args = [ctx.required(k) for k in range(len(ctx.inputs))]
    axis = normalize_axis(ctx.attr("axis", 1), ctx.info(0).rank)
    return args[0] if len(args) == 1 else ctx.emit("concat", *args, axis=axis)


def sliced(ctx: NodeContext, x: RelaxExpr, axis: int, start: Expr, stop: Expr) -> RelaxExpr:
    """x[start:stop] along one axis; both in range."""
    shape = tensor_info(x).shape
    if as_int(start) == 0 and stop is shape[axis]:
        return x
    starts = tuple(start if k == axis else Const(0) for k in range(len(shape)))
    stops = tuple(stop if k == axis else d for k, d in enumerate(shape))
    return ctx.emit("slice", x, starts=starts, stops=stops, steps=tuple(1 for _ in shape))


def _split(ctx: NodeContext) -> Result:
    x, axis = ctx.required(0), normalize_axis(ctx.attr("axis", 0), ctx.info(0).rank)
    extent = ctx.info(0).shape[axis]
    sizes: list[Expr]
    if ctx.input(1) is not None:
        sizes = ctx.shape_list(1, "the sizes of a split")
    elif ctx.attr("split") is not None:
        sizes = [const(s) for s in ctx.attr("split")]
    else:
        count = ctx.attr("num_outputs", len(ctx.node.output))
        piece = ctx.importer.builder.ctx.simplify((extent + (count - 1)) // count)
        sizes = [piece] * (count - 1)
        sizes.append(ctx.importer.builder.ctx.simplify(extent - piece * (count - 1)))
    results, start = [], const(0)
    for size in sizes:
        stop = ctx.importer.builder.ctx.simplify(start + size)
        results.append(sliced(ctx, x, axis, start, stop))
        start = stop
    return results


def _bound(ctx: NodeContext, value: Expr, extent: Expr, step: int, is_stop: bool) -> Expr:
    """A slice end as numpy clamps it, for an axis of `extent`."""
    simplify = ctx.importer.builder.ctx.simplify
    low, high = (0, extent) if step > 0 else (-1 if is_stop else 0, extent - 1)
    known = as_int(value)
    if known is not None:
        if known >= 2**31 - 1:
            return const(high)
        if known <= -(2**31):
            return const(low)
        wrapped = extent + known if known < 0 else const(known)
    else:
        if ctx.importer.builder.ctx.analyzer.can_prove(ge(value, 0)):
            wrapped = value
        else:
            wrapped = select(lt(value, 0), value + extent, value)
    return simplify(maximum(minimum(wrapped, high), low))


def _slice(ctx: NodeContext) -> Result:
    shape = ctx.info(0).shape
    if ctx.opset < 10:
        starts, stops = [const(v) for v in ctx.attr("starts")], [const(v) for v in ctx.attr("ends")]
        axes, steps = ctx.attr("axes", list(range(len(starts)))), [1] * len(starts)
    else:
        starts, stops = ctx.shape_list(1, "the starts of a slice"), ctx.shape_list(2, "the ends of a slice")
        axes = ctx.int_list(3, "the axes of a slice") if ctx.input(3) is not None else list(range(len(starts)))
        steps = ctx.int_list(4, "the steps of a slice") if ctx.input(4) is not None else [1] * len(starts)
    begin: list[Expr] = [Const(0) for _ in shape]
    end, step = list(shape), [1] * len(shape)
    for s, e, a, st in zip(starts, stops, axes, steps, strict=True):
        if st == 0:
            raise ctx.unsupported("a slice with step 0")
        axis = normalize_axis(a, len(shape))
        begin[axis] = _bound(ctx, s, shape[axis], st, False)
        stop = _bound(ctx, e, shape[axis], st, True)
        between = maximum(stop, begin[axis]) if st > 0 else minimum(stop, begin[axis])
        end[axis] = ctx.importer.builder.ctx.simplify(between)
        step[axis] = st
    return ctx.emit("slice", ctx.required(0), starts=tuple(begin), stops=tuple(end), steps=tuple(step))


def _pad(ctx: NodeContext) -> Result:
    x, rank = ctx.required(0), ctx.info(0).rank
    mode = ctx.attr("mode", "constant")
    pads = ctx.shape_list(1, "the pads") if ctx.opset >= 11 else [const(p) for p in ctx.attr("pads", ctx.attr("paddings"))]
    axes = [normalize_axis(a, rank) for a in ctx.int_list(3, "the axes of a pad")] if ctx.input(3) is not None else list(range(rank))
    before: list[Expr | int] = [0] * rank
    after: list[Expr | int] = [0] * rank
    for k, a in enumerate(axes):
        low, high = pads[k], pads[k + len(axes)]
        before[a] = low if as_int(low) is None else as_int(low)  # type: ignore[assignment]
        after[a] = high if as_int(high) is None else as_int(high)  # type: ignore[assignment]
    if mode == "reflect" and any(as_int(p) is None for p in (*before, *after)):
        raise ctx.unsupported("a reflecting pad of symbolic width")
    args = [x]
    if mode == "constant":
        value = ctx.input(2)
        if value is None and ctx.opset < 11 and ctx.attr("value", 0.0):
            value = ctx.constant(np.asarray(ctx.attr("value")).astype(ctx.info(0).dtype.numpy))
        if value is not None:
            args.append(value)
    return ctx.emit("pad", *args, before=tuple(before), after=tuple(after), mode=mode)


def _expand(ctx: NodeContext) -> Result:
    infer = ctx.importer.builder.ctx
    target = infer.broadcast(ctx.info(0).shape, ctx.shape_list(1, "the shape of an expand"), "expand: the shapes do not fit")
    return ctx.emit("broadcast_to", ctx.required(0), shape=tuple(target))


def _tile(ctx: NodeContext) -> Result:
    return ctx.emit("tile", ctx.required(0), repeats=tuple(ctx.shape_list(1, "the repeats of a tile")))


def _gather(ctx: NodeContext) -> Result:
    return ctx.emit("gather", ctx.required(0), ctx.required(1), axis=normalize_axis(ctx.attr("axis", 0), ctx.info(0).rank))


def _gather_elements(ctx: NodeContext) -> Result:
    axis = normalize_axis(ctx.attr("axis", 0), ctx.info(0).rank)
    return ctx.emit("gather_elements", ctx.required(0), ctx.required(1), axis=axis)


def _depth(ctx: NodeContext) -> int:
    depth = as_int(ctx.info(1).shape[-1])
    if depth is None:
        raise ctx.unsupported("an index depth that is not a constant")
    return depth


def _gather_nd(ctx: NodeContext) -> Result:
    return ctx.emit("gather_nd", ctx.required(0), ctx.required(1), batch_dims=ctx.attr("batch_dims", 0), depth=_depth(ctx))


def _scatter_elements(ctx: NodeContext) -> Result:
    axis = normalize_axis(ctx.attr("axis", 0), ctx.info(0).rank)
    args = (ctx.required(0), ctx.required(1), ctx.required(2))
    return ctx.emit("scatter_elements", *args, axis=axis, reduction=ctx.attr("reduction", "none"))


def _scatter_nd(ctx: NodeContext) -> Result:
    args = (ctx.required(0), ctx.required(1), ctx.required(2))
    return ctx.emit("scatter_nd", *args, depth=_depth(ctx), reduction=ctx.attr("reduction", "none"))


def _tensor_scatter(ctx: NodeContext) -> Result:
    """A cache with rows replaced from write_indices[batch] on: each place of the cache takes from the update or stays."""
    cache, update, shape, rank = ctx.required(0), ctx.required(1), ctx.info(0).shape, ctx.info(0).rank
    axis = normalize_axis(ctx.attr("axis", -2), rank)
    mode = ctx.attr("mode", "linear")
    if axis == 0 or mode not in ("linear", "circular"):
        raise ctx.unsupported(f"a cache update along axis {axis} in mode {mode!r}")
    length, written = shape[axis], ctx.info(1).shape[axis]
    if as_int(written) == 0:
        return cache
    along = tuple(length if k == axis else Const(1) for k in range(rank))
    place = ctx.emit("reshape", ctx.emit("iota", start=Const(0), step=1, count=length, dtype="i64"), shape=along)
    if ctx.input(2) is not None:
        first = as_dtype(ctx, ctx.required(2), "i64")
        first = ctx.emit("reshape", first, shape=(shape[0], *(Const(1) for _ in range(rank - 1))))
        place = ctx.emit("subtract", place, first)
    if mode == "circular":
        place = ctx.emit("mod", place, ctx.emit("shape_tensor", values=(length,), dims=(), dtype="i64"))
    end = ctx.emit("shape_tensor", values=(written,), dims=(), dtype="i64")
    zero = ctx.constant(0, "i64")
    inside = ctx.emit("logical_and", ctx.emit("greater_equal", place, zero), ctx.emit("less", place, end))
    row = ctx.emit("broadcast_to", ctx.emit("where", inside, place, zero), shape=shape)
    return ctx.emit("where", inside, ctx.emit("gather_elements", update, row, axis=axis), cache)


def _one_hot(ctx: NodeContext) -> Result:
    index = ctx.required(0)
    depth = ctx.const_value(1)
    known = const(int(depth.reshape(-1)[0])) if depth is not None else ctx.shape_scalar(1, "the depth of a one-hot")
    rank = ctx.info(0).rank + 1
    if not ctx.info(0).dtype.is_int:
        index = as_dtype(ctx, index, "i64")
    return ctx.emit("one_hot", index, ctx.required(2), axis=normalize_axis(ctx.attr("axis", -1), rank), depth=known)


def _shape(ctx: NodeContext) -> Result:
    raise ctx.unsupported("the shape could not be told")  # dealt with by the importer


def _constant(ctx: NodeContext) -> Result:
    for name, kind in (("value_float", np.float32), ("value_floats", np.float32), ("value_int", np.int64), ("value_ints", np.int64)):
        if ctx.attr(name) is not None:
            return ctx.constant(np.asarray(ctx.attr(name), dtype=kind))
    value = ctx.attr("value")
    if not isinstance(value, np.ndarray):
        raise ctx.unsupported("a constant that is no dense numeric tensor")
    return ctx.constant(value)


def _constant_of_shape(ctx: NodeContext) -> Result:
    value = ctx.attr("value")
    fill = ctx.constant(np.zeros((), np.float32) if value is None else value.reshape(()))
    return ctx.emit("full", fill, shape=tuple(ctx.shape_list(0, "the shape of a fill")))


def _range(ctx: NodeContext) -> Result:
    t = ctx.info(0).dtype
    values = [ctx.const_value(k) for k in range(3)]
    if all(v is not None for v in values):
        start, limit, step = (v.reshape(-1)[0] for v in values)  # type: ignore[union-attr]
        count = max(int(np.ceil((float(limit) - float(start)) / float(step))), 0)
        numbers = (np.asarray(start) + np.arange(count).astype(t.numpy) * np.asarray(step)).astype(t.numpy)
        return ctx.constant(numbers)
    start, limit, step = (ctx.shape_scalar(k, "an end of a range") for k in range(3))
    stride = as_int(step)
    if stride is None or stride == 0:
        raise ctx.unsupported("a range whose step is no constant")
    span = limit - start if stride > 0 else start - limit
    count_expr = ctx.importer.builder.ctx.simplify(maximum((span + (abs(stride) - 1)) // abs(stride), 0))
    return ctx.emit("iota", start=start, step=stride, count=count_expr, dtype=t.name)


def _eye_like(ctx: NodeContext) -> Result:
    t = target_dtype(ctx, ctx.attr("dtype")) if ctx.attr("dtype") is not None else ctx.info(0).dtype
    return ctx.emit("eye", shape=tuple(ctx.info(0).shape), k=ctx.attr("k", 0), dtype=t.name)


def _trilu(ctx: NodeContext) -> Result:
    k = ctx.int_scalar(1, "the diagonal of a triangle") if ctx.input(1) is not None else 0
    return ctx.emit("trilu", ctx.required(0), k=k, upper=ctx.attr("upper", 1))


def _depth_to_space(ctx: NodeContext) -> Result:
    n, c, h, w = ctx.info(0).shape
    b = ctx.attr("blocksize")
    inner = c // (b * b)
    if ctx.attr("mode", "DCR") == "DCR":
        x = ctx.emit("reshape", ctx.required(0), shape=(n, Const(b), Const(b), inner, h, w))
        x = ctx.emit("transpose", x, axes=(0, 3, 4, 1, 5, 2))
    else:
        x = ctx.emit("reshape", ctx.required(0), shape=(n, inner, Const(b), Const(b), h, w))
        x = ctx.emit("transpose", x, axes=(0, 1, 4, 2, 5, 3))
    return ctx.emit("reshape", x, shape=(n, inner, h * b, w * b))


def _space_to_depth(ctx: NodeContext) -> Result:
    n, c, h, w = ctx.info(0).shape
    b = ctx.attr("blocksize")
    x = ctx.emit("reshape", ctx.required(0), shape=(n, c, h // b, Const(b), w // b, Const(b)))
    axes = (0, 1, 3, 5, 2, 4) if ctx.attr("mode", "DCR") == "CRD" else (0, 3, 5, 1, 2, 4)
    return ctx.emit("reshape", ctx.emit("transpose", x, axes=axes), shape=(n, c * (b * b), h // b, w // b))


def _reverse_sequence(ctx: NodeContext) -> Result:
    batch, time = ctx.attr("batch_axis", 1), ctx.attr("time_axis", 0)
    return ctx.emit("reverse_sequence", ctx.required(0), ctx.required(1), batch_axis=batch, time_axis=time)


def _topk(ctx: NodeContext) -> Result:
    k = const(ctx.attr("k")) if ctx.opset < 10 else ctx.shape_scalar(1, "the k of a top-k")
    axis = normalize_axis(ctx.attr("axis", -1), ctx.info(0).rank)
    return list(ctx.emit_many("topk", ctx.required(0), axis=axis, k=k, largest=ctx.attr("largest", 1)))


def _center_crop_pad(ctx: NodeContext) -> Result:
    x, rank = ctx.required(0), ctx.info(0).rank
    axes = [normalize_axis(a, rank) for a in ctx.attr("axes") or range(rank)]
    sizes = ctx.int_list(1, "the shape of a centre crop")
    before, after = [0] * rank, [0] * rank
    for a, size in zip(axes, sizes, strict=True):
        extent = as_int(ctx.info(0).shape[a])
        if extent is None:
            raise ctx.unsupported("a centre crop of a symbolic dimension")
        if size >= extent:
            before[a] = (size - extent) // 2
        else:
            before[a] = -((extent - size) // 2)
        after[a] = size - extent - before[a]
    return ctx.emit("pad", x, before=tuple(before), after=tuple(after), mode="constant")


def refuse(reason: str) -> Converter:
    """A converter for what is known to be missing."""

    def convert(ctx: NodeContext) -> Result:
        raise ctx.unsupported(reason)

    return convert



SHAPE: Rows = {
    "Reshape": [(1, _reshape)],
    "Flatten": [(1, _flatten)],
    "Squeeze": [(1, _squeeze)],
    "Unsqueeze": [(1, _unsqueeze)],
    "Transpose": [(1, _transpose)],
    "Concat": [(1, _concat)],
    "Split": [(2, _split)],
    "Slice": [(1, _slice)],
    "Pad": [(1, _pad)],
    "Expand": [(8, _expand)],
    "Tile": [(6, _tile)],
    "Gather": [(1, _gather)],
    "GatherElements": [(11, _gather_elements)],
    "GatherND": [(11, _gather_nd)],
    "Scatter": [(9, _scatter_elements)],
    "ScatterElements": [(11, _scatter_elements)],
    "ScatterND": [(11, _scatter_nd)],
    "TensorScatter": [(24, _tensor_scatter)],
    "OneHot": [(9, _one_hot)],
    "Shape": [(1, _shape)],
    "Size": [(1, _shape)],
    "Constant": [(1, _constant)],
    "ConstantOfShape": [(9, _constant_of_shape)],
    "Range": [(11, _range)],
    "EyeLike": [(9, _eye_like)],
    "Trilu": [(14, _trilu)],
    "DepthToSpace": [(1, _depth_to_space)],
    "SpaceToDepth": [(1, _space_to_depth)],
    "ReverseSequence": [(10, _reverse_sequence)],
    "TopK": [(1, _topk)],
    "CenterCropPad": [(18, _center_crop_pad)],
}
