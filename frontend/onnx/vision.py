"""Regions of interest: parts of feature maps resampled to one size (Mask R-CNN, He et al. 2017, section 3)."""

from __future__ import annotations

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import NodeContext, Result, Rows, tensor_info
from everport.frontend.onnx.shape import sliced
from everport.relax.expr import RelaxExpr
from everport.tir.expr import Const, Expr


class _Samples:
    """Sampling positions along one axis, for each region, as (regions, count): the rows to read and their weights."""

    def __init__(self, ctx: NodeContext, first: RelaxExpr, last: RelaxExpr, bins: int, each: int, extent: Expr) -> None:
        self.ctx, self.dtype = ctx, ctx.info(1).dtype
        span = self.op("subtract", last, first)
        if ctx.attr("coordinate_transformation_mode", "half_pixel") == "output_half_pixel" or ctx.opset < 16:
            span = self.op("maximum", span, 1.0)
        places = (np.arange(bins)[:, None] + (np.arange(each) + 0.5) / each).reshape(1, -1)
        step = self.op("divide", span, float(bins))
        at = self.op("add", first, self.op("multiply", step, ctx.constant(places, self.dtype)))
        size = as_dtype(ctx, ctx.emit("shape_tensor", values=(extent,), dims=(), dtype="i64"), self.dtype.name)
        end = self.op("subtract", size, 1.0)
        outside = ctx.emit("logical_or", self.op("less", at, -1.0), self.op("greater", at, size))
        at = self.op("minimum", self.op("maximum", at, 0.0), end)
        low = self.op("floor", at)
        weight = self.op("subtract", at, low)
        zero = ctx.constant(0.0, self.dtype)
        self.rows = [as_dtype(ctx, v, "i64") for v in (low, self.op("minimum", self.op("add", low, 1.0), end))]
        self.weights = [ctx.emit("where", outside, zero, w) for w in (self.op("subtract", 1.0, weight), weight)]

    def op(self, name: str, *args: RelaxExpr | float) -> RelaxExpr:
        return self.ctx.emit(name, *(self.ctx.constant(a, self.dtype) if isinstance(a, float) else a for a in args))


def _roi_align(ctx: NodeContext) -> Result:
    """Each bin is the mean over sampling_ratio x sampling_ratio bilinear samples, or the largest weighted corner of them."""
    each, mode = ctx.attr("sampling_ratio", 0), ctx.attr("mode", "avg")
    if each < 1:
        raise ctx.unsupported("regions whose number of samples depends on their size (sampling_ratio 0)")
    if mode not in ("avg", "max"):
        raise ctx.unsupported(f"the mode {mode!r}")
    x, regions, count = ctx.required(0), ctx.required(1), ctx.info(1).shape[0]
    half = ctx.opset >= 16 and ctx.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    corners = ctx.emit("multiply", regions, ctx.constant(ctx.attr("spatial_scale", 1.0), ctx.info(1).dtype))
    if half:
        corners = ctx.emit("subtract", corners, ctx.constant(0.5, ctx.info(1).dtype))
    x1, y1, x2, y2 = (sliced(ctx, corners, 1, Const(k), Const(k + 1)) for k in range(4))
    bins = ctx.attr("output_height", 1), ctx.attr("output_width", 1)
    channels, height, width = ctx.info(0).shape[1:]
    vertical = _Samples(ctx, y1, y2, bins[0], each, height)
    horizontal = _Samples(ctx, x1, x2, bins[1], each, width)
    rows, columns = bins[0] * each, bins[1] * each
    shape = (count, Const(rows), Const(columns), Const(1))

    def spread(v: RelaxExpr, axis: int) -> RelaxExpr:
        """(regions, samples) along one axis of (regions, rows, columns, 1)."""
        inner = [count, Const(1), Const(1), Const(1)]
        if axis:
            inner[axis] = tensor_info(v).shape[1]
        return ctx.emit("broadcast_to", ctx.emit("reshape", v, shape=tuple(inner)), shape=shape)

    batch = spread(ctx.emit("reshape", as_dtype(ctx, ctx.required(2), "i64"), shape=(count, Const(1))), 0)
    maps = ctx.emit("transpose", x, axes=(0, 2, 3, 1))
    parts = []
    for row, a in zip(vertical.rows, vertical.weights, strict=True):
        for column, b in zip(horizontal.rows, horizontal.weights, strict=True):
            place = ctx.emit("concat", batch, spread(row, 1), spread(column, 2), axis=3)
            weight = as_dtype(ctx, ctx.emit("multiply", spread(a, 1), spread(b, 2)), ctx.info(0).dtype.name)
            parts.append(ctx.emit("multiply", ctx.emit("gather_nd", maps, place, batch_dims=0, depth=3), weight))
    join = "add" if mode == "avg" else "maximum"
    total = parts[0]
    for p in parts[1:]:
        total = ctx.emit(join, total, p)
    split = ctx.emit("reshape", total, shape=(count, Const(bins[0]), Const(each), Const(bins[1]), Const(each), channels))
    reduced = ctx.emit("reduce_mean" if mode == "avg" else "reduce_max", split, axes=(2, 4), keepdims=0)
    return ctx.emit("transpose", reduced, axes=(0, 3, 1, 2))


VISION: Rows = {
    "RoiAlign": [(10, _roi_align)],
}
