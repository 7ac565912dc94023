"""Fourier transforms, as products with the matrix of the transform: x_k = sum over j of x_j exp(-2 pi i j k / n)."""

from __future__ import annotations

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import NodeContext, Result, Rows, tensor_info
from everport.frontend.onnx.shape import sliced
from everport.relax.expr import RelaxExpr
from everport.relax.op.base import normalize_axis
from everport.tir.expr import Const, Expr, as_int, const

LONGEST = 4096  # the matrix has a row and two columns for each element


def _matrix(n: int, complex_input: bool, inverse: bool, onesided: bool) -> np.ndarray:
    """(rows, columns) in f64. Rows are the elements' real parts, then (complex input) their imaginary parts; columns are the real
    parts of the results, then their imaginary parts. The inverse of a one-sided spectrum has real results only."""
    half = n // 2 + 1
    real_result = inverse and onesided
    rows, columns = (half, n) if real_result else (n, half if onesided else n)
    turns = np.outer(np.arange(rows), np.arange(columns)) % n
    angle = turns * (2 * np.pi / n)
    cos, sin = np.cos(angle), np.sin(angle) * (1 if inverse else -1)
    if real_result:
        weight = np.full((rows, 1), 2.0)  # an inner element stands for its mirror image too
        weight[0] = 1
        if n % 2 == 0:
            weight[-1] = 1
        return np.concatenate([weight * cos, -weight * sin])[: 2 * rows if complex_input else rows] / n
    real_rows = np.concatenate([cos, sin], 1)
    imaginary_rows = np.concatenate([-sin, cos], 1)
    matrix = np.concatenate([real_rows, imaginary_rows]) if complex_input else real_rows
    return matrix / n if inverse else matrix


def _resized(ctx: NodeContext, x: RelaxExpr, axis: int, n: int) -> RelaxExpr:
    """The first `n` elements along an axis, zeros where there are fewer."""
    extent = as_int(tensor_info(x).shape[axis])
    if extent is None:
        raise ctx.unsupported("a Fourier transform that crops or pads a symbolic dimension")
    if extent > n:
        return sliced(ctx, x, axis, Const(0), Const(n))
    after = tuple(n - extent if k == axis else 0 for k in range(tensor_info(x).rank))
    return x if extent == n else ctx.emit("pad", x, before=(0,) * len(after), after=after, mode="constant")


def _transform(ctx: NodeContext, x: RelaxExpr, axis: int, n: int, inverse: bool, onesided: bool) -> RelaxExpr:
    """The transform of length `n` along `axis`; the last axis of `x` is the real part, or real and imaginary part."""
    if not 1 <= n <= LONGEST:
        raise ctx.unsupported(f"a Fourier transform of length {n} (1 to {LONGEST} are supported)")
    parts = as_int(tensor_info(x).shape[-1])
    if parts not in (1, 2):
        raise ctx.unsupported("a Fourier transform of a tensor whose last dimension is neither 1 nor 2")
    if onesided and not inverse and parts == 2:
        raise ctx.unsupported("a one-sided Fourier transform of a complex tensor")
    rank, real_result = tensor_info(x).rank, inverse and onesided
    x = _resized(ctx, x, axis, n // 2 + 1 if real_result else n)
    others = [k for k in range(rank - 1) if k != axis]
    outer = tuple(tensor_info(x).shape[k] for k in others)
    rows = ctx.emit("transpose", x, axes=(*others, rank - 1, axis))
    rows = ctx.emit("reshape", rows, shape=(*outer, const(parts) * tensor_info(x).shape[axis]))
    matrix = _matrix(n, parts == 2, inverse, onesided)
    # Frequencies that a signal lacks are sums that cancel: in f64 they come out as zeros of the signal's own precision.
    product = as_dtype(ctx, ctx.emit("matmul", as_dtype(ctx, rows, "f64"), ctx.constant(matrix)), ctx.info(0).dtype.name)
    results = 1 if real_result else 2
    split = ctx.emit("reshape", product, shape=(*outer, Const(results), Const(matrix.shape[1] // results)))
    back = [others.index(k) if k != axis else rank - 1 for k in range(rank - 1)]
    return ctx.emit("transpose", split, axes=(*back, rank - 2))


def _length(ctx: NodeContext, k: int, default: Expr, what: str) -> int:
    if ctx.input(k) is not None:
        return ctx.int_scalar(k, what)
    known = as_int(default)
    if known is None:
        raise ctx.unsupported(f"{what} must be known at compile time; here it is {default}, which --dim can fix")
    return known


def _float_input(ctx: NodeContext) -> None:
    if not ctx.info(0).dtype.is_float:
        raise ctx.unsupported(f"a Fourier transform of {ctx.info(0).dtype}")


def _dft(ctx: NodeContext) -> Result:
    _float_input(ctx)
    inverse, onesided = bool(ctx.attr("inverse", 0)), bool(ctx.attr("onesided", 0))
    rank = ctx.info(0).rank
    if ctx.opset < 20:
        axis = normalize_axis(ctx.attr("axis", 1), rank)
    else:
        axis = normalize_axis(ctx.int_scalar(2, "the axis of a Fourier transform") if ctx.input(2) is not None else -2, rank)
    if axis == rank - 1:
        raise ctx.unsupported("a Fourier transform along the axis of real and imaginary parts")
    extent = ctx.info(0).shape[axis]
    default = 2 * (extent - 1) if inverse and onesided else extent
    n = _length(ctx, 1, ctx.importer.builder.ctx.simplify(default), "the length of a Fourier transform")
    return _transform(ctx, ctx.required(0), axis, n, inverse, onesided)


def _stft(ctx: NodeContext) -> Result:
    """Transforms of overlapping frames of a signal (batch, length, parts), to (batch, frames, frequencies, 2)."""
    _float_input(ctx)
    x, window = ctx.required(0), ctx.input(2)
    step = _length(ctx, 1, Const(0), "the step between frames")
    default = tensor_info(window).shape[0] if window is not None else Const(0)
    n = _length(ctx, 3, default, "the length of a frame")
    if step < 1 or n < 1:
        raise ctx.unsupported("a short-time Fourier transform whose step or frame length is not positive")
    length = as_int(ctx.info(0).shape[1])
    if length is not None and length < n:
        raise ctx.unsupported(f"a signal of {length} samples, shorter than a frame of {n}")
    frames = ctx.importer.builder.ctx.simplify((ctx.info(0).shape[1] - n) // step + 1)
    starts = ctx.emit("iota", start=Const(0), step=step, count=frames, dtype="i64")
    places = ctx.emit("add", ctx.emit("reshape", starts, shape=(frames, Const(1))), ctx.constant(np.arange(n)[None], "i64"))
    cut = ctx.emit("gather", x, places, axis=1)
    if window is not None:
        cut = ctx.emit("multiply", cut, ctx.emit("reshape", window, shape=(*tensor_info(window).shape, Const(1))))
    return _transform(ctx, cut, 2, n, False, bool(ctx.attr("onesided", 1)))


SIGNAL: Rows = {
    "DFT": [(17, _dft)],
    "STFT": [(17, _stft)],
}
