"""Operators on sequences of tokens that are numbers."""

from __future__ import annotations

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import NodeContext, Result, Rows, tensor_info
from everport.relax.expr import RelaxExpr
from everport.tir.expr import Const, Expr, maximum


def _grams(ctx: NodeContext) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """For each length n that counts: n, the n-grams (count, n), and the output column of each."""
    if ctx.attr("pool_strings"):
        raise ctx.unsupported("n-grams of strings")
    pool, starts = np.asarray(ctx.attr("pool_int64s", []), np.int64), list(ctx.attr("ngram_counts", []))
    columns = np.asarray(ctx.attr("ngram_indexes", []), np.int64)
    found, first = [], 0
    for n, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        if not 0 <= start <= stop <= len(pool) or (stop - start) % n:
            raise ctx.unsupported(f"the pool from {start} to {stop} does not hold whole {n}-grams")
        count = (stop - start) // n
        if count and ctx.attr("min_gram_length") <= n <= ctx.attr("max_gram_length"):
            found.append((n, pool[start:stop].reshape(count, n), columns[first : first + count]))
        first += count
    if first != len(columns) or (columns.size and columns.min() < 0):
        raise ctx.unsupported(f"{len(columns)} output columns for {first} n-grams")
    return found


def _occurrences(ctx: NodeContext, x: RelaxExpr, length: Expr, grams: np.ndarray, stride: int) -> RelaxExpr:
    """How often each n-gram (count, n) occurs in each row of x (rows, length) with items `stride` apart, in f32."""
    n, rows = grams.shape[1], tensor_info(x).shape[0]
    places = ctx.importer.builder.ctx.simplify(maximum(length - (n - 1) * stride, 0))
    first = ctx.emit("reshape", ctx.emit("iota", start=Const(0), step=1, count=places, dtype="i64"), shape=(places, Const(1)))
    windows = ctx.emit("gather", x, ctx.emit("add", first, ctx.constant(np.arange(n)[None] * stride, "i64")), axis=1)
    windows = ctx.emit("reshape", windows, shape=(rows, places, Const(1), Const(n)))
    same = ctx.emit("reduce_all", ctx.emit("equal", windows, ctx.constant(grams)), axes=(3,), keepdims=0)
    return ctx.emit("reduce_sum", as_dtype(ctx, same, "f32"), axes=(1,), keepdims=0)


def _tf_idf(ctx: NodeContext) -> Result:
    """Counts of n-grams, truncated and weighted as the mode says. The weights are those of output columns, as in ONNX Runtime
    and ONNX's reference (the standard's text speaks of n-grams: it is the same where column i is n-gram i)."""
    shape, mode = ctx.info(0).shape, ctx.attr("mode")
    if not ctx.info(0).dtype.is_int or len(shape) not in (1, 2):
        raise ctx.unsupported(f"n-grams of {ctx.info(0)}")
    if mode not in ("TF", "IDF", "TFIDF"):
        raise ctx.unsupported(f"the mode {mode!r}")
    x = as_dtype(ctx, ctx.required(0), "i64")
    if len(shape) == 1:
        x = ctx.emit("reshape", x, shape=(Const(1), shape[0]))
    rows: Expr = Const(1) if len(shape) == 1 else shape[0]
    width = max(ctx.attr("ngram_indexes", []), default=-1) + 1
    # Columns first: an n-gram's counts are added to the row of its column.
    total = ctx.emit("full", ctx.constant(np.float32(0)), shape=(Const(width), rows))
    for n, grams, columns in _grams(ctx):
        for skip in range(1 if n == 1 else ctx.attr("max_skip_count") + 1):
            counts = ctx.emit("transpose", _occurrences(ctx, x, shape[-1], grams, skip + 1), axes=(1, 0))
            total = ctx.emit("scatter_nd", total, ctx.constant(columns[:, None]), counts, depth=1, reduction="add")
    if mode == "IDF":
        total = ctx.emit("minimum", total, ctx.constant(np.float32(1)))
    if mode != "TF" and ctx.attr("weights"):
        weights = np.asarray(ctx.attr("weights"), np.float32)
        if len(weights) < width:
            raise ctx.unsupported(f"{len(weights)} weights for {width} output columns")
        total = ctx.emit("multiply", total, ctx.constant(weights[:width, None]))
    y = ctx.emit("transpose", total, axes=(1, 0))
    return y if len(shape) == 2 else ctx.emit("reshape", y, shape=(Const(width),))


TEXT: Rows = {
    "TfIdfVectorizer": [(9, _tf_idf)],
}
