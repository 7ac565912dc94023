"""Convolutions over any number of spatial axes, in N C spatial... layout.

conv(x, w): w is (out, in / group, kernel...), or with the attribute weights="io" (in, kernel..., out). Attributes: strides, dilations (tuples of ints), before, after (pads, may be
negative or expressions), group, out_dtype (optional: integers accumulate in it).
conv_transpose(x, w): w is (in, out / group, kernel...); also output_shape (spatial extents).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import dtype
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, expect_dtypes, table
from everport.relax.op.reduce import accumulator
from everport.relax.op.unary import widened
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Expr, as_int, cast, const, eq, ge, logical_and, lt, select


def out_extent(ctx: InferContext, d: Expr, k: Expr, stride: int, dilation: int, before: Any, after: Any) -> Expr:
    """The extent of a convolution's output along one axis."""
    span = (k - 1) * dilation + 1
    return ctx.simplify((d + const(before) + const(after) - span) // stride + 1)


def _infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    x, w = infos
    if attrs.get("weights") == "io":
        w = TensorInfo((w.shape[-1], *w.shape[:-1]), w.dtype)
    if x.rank < 3 or w.rank != x.rank:
        raise CompileError(f"conv takes an input and weights of one rank, 3 or more; got {x} and {w}")
    group = attrs["group"]
    ctx.unify(x.shape[1], ctx.simplify(w.shape[1] * group), f"conv: the channels of {x} do not fit the weights {w}")
    spatial = [
        out_extent(ctx, d, k, s, dl, p, q)
        for d, k, s, dl, p, q in zip(
            x.shape[2:], w.shape[2:], attrs["strides"], attrs["dilations"], attrs["before"], attrs["after"], strict=True
        )
    ]
    t = dtype(attrs["out_dtype"]) if isinstance(attrs.get("out_dtype"), str) else expect_dtypes(infos, "conv")
    return TensorInfo((x.shape[0], w.shape[0], *spatial), t)


def _padded(x: np.ndarray, attrs: Mapping[str, Any]) -> np.ndarray:
    widths = [(0, 0), (0, 0), *((max(p, 0), max(q, 0)) for p, q in zip(attrs["before"], attrs["after"], strict=True))]
    y = np.pad(x, widths)
    cut = [slice(max(-p, 0), y.shape[k + 2] - max(-q, 0)) for k, (p, q) in enumerate(zip(attrs["before"], attrs["after"], strict=True))]
    return y[(slice(None), slice(None), *cut)]


def _numpy(attrs: Mapping[str, Any], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    t = np.dtype(attrs["out_dtype"]) if not isinstance(attrs["out_dtype"], str) else dtype(attrs["out_dtype"]).numpy
    wide = t if t.kind in "iu" else widened(x).dtype
    if attrs.get("weights") == "io":
        w = np.moveaxis(w, -1, 0)
    xp, wf = _padded(widened(x).astype(wide), attrs), widened(w).astype(wide)
    shape, group = attrs["out_shape"], attrs["group"]
    n, o = shape[0], shape[1]
    out = np.zeros((n, group, o // group, *shape[2:]), wide)
    xg = xp.reshape(n, group, w.shape[1], *xp.shape[2:])
    wg = wf.reshape(group, o // group, *wf.shape[1:])
    for place in itertools.product(*(range(k) for k in w.shape[2:])):
        window = tuple(
            slice(p * d, p * d + (e - 1) * s + 1, s)
            for p, d, s, e in zip(place, attrs["dilations"], attrs["strides"], shape[2:], strict=True)
        )
        out += np.einsum("ngc...,goc->ngo...", xg[(slice(None), slice(None), slice(None), *window)], wg[(..., *place)])
    return out.reshape(shape).astype(t)


def pad_spatial(b: FuncBuilder, x: Buffer, before: Sequence[Any], after: Sequence[Any], fill: Expr) -> Buffer:
    """x with its spatial axes padded (or cropped) by `fill`; x itself where nothing is to do."""
    if all(as_int(p) == 0 for p in (*before, *after)):
        return x
    spatial = [d + const(p) + const(q) for d, p, q in zip(x.shape[2:], before, after, strict=True)]

    def element(*i: Expr) -> Expr:
        places, inside = list(i[:2]), []
        for v, p, q, d in zip(i[2:], before, after, x.shape[2:], strict=True):
            place = v - const(p)
            places.append(place)
            if as_int(p) is None or as_int(p) > 0:  # type: ignore[operator]
                inside.append(ge(place, 0))
            if as_int(q) is None or as_int(q) > 0:  # type: ignore[operator]
                inside.append(lt(place, d))
        value = x[tuple(places)]
        return select(logical_and(*inside), value, fill) if inside else value

    return b.compute("padded", (*x.shape[:2], *spatial), x.dtype, element)


def _lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, w = buffers
    assert isinstance(info, TensorInfo)
    t = accumulator(info.dtype)
    padded = pad_spatial(b, x, attrs["before"], attrs["after"], const(0, x.dtype))
    rank = x.rank - 2
    per_group = info.shape[1] // attrs["group"]
    swapped = attrs.get("weights") == "io"
    w_shape = (w.shape[-1], *w.shape[:-1]) if swapped else w.shape

    def term(*i: Expr) -> Expr:
        n, o, space, c, k = i[0], i[1], i[2 : 2 + rank], i[2 + rank], i[3 + rank :]
        places = [s * st + kk * dl for s, kk, st, dl in zip(space, k, attrs["strides"], attrs["dilations"], strict=True)]
        channel = c if attrs["group"] == 1 else o // per_group * w_shape[1] + c
        if as_int(w_shape[1]) == 1 and as_int(per_group) == 1:
            channel = o
        weight = w[(c, *k, o)] if swapped else w[(o, c, *k)]
        return cast(padded[(n, channel, *places)], t) * cast(weight, t)

    total = b.reduce("conv", info.shape, [w_shape[1], *w_shape[2:]], t, "sum", term)
    return total if t == info.dtype else b.compute("rounded", total.shape, info.dtype, lambda *i: cast(total[i], info.dtype))


def _infer_transpose(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    x, w = infos
    ctx.unify(x.shape[1], w.shape[0], f"conv_transpose: the channels of {x} do not fit the weights {w}")
    return TensorInfo((x.shape[0], ctx.simplify(w.shape[1] * attrs["group"]), *attrs["output_shape"]), expect_dtypes(infos, "conv_transpose"))


def _numpy_transpose(attrs: Mapping[str, Any], x: np.ndarray, w: np.ndarray) -> np.ndarray:
    shape, group = attrs["out_shape"], attrs["group"]
    xw, ww = widened(x), widened(w)
    n, o = shape[0], shape[1] // group
    out = np.zeros((n, group, o, *shape[2:]), xw.dtype)
    xg = xw.reshape(n, group, x.shape[1] // group, *x.shape[2:])
    wg = ww.reshape(group, -1, o, *w.shape[2:])
    for place in itertools.product(*(range(d) for d in x.shape[2:])):
        for k in itertools.product(*(range(d) for d in w.shape[2:])):
            at = [p * s + kk * dl - b for p, s, kk, dl, b in zip(place, attrs["strides"], k, attrs["dilations"], attrs["before"], strict=True)]
            if all(0 <= a < d for a, d in zip(at, shape[2:], strict=True)):
                out[(..., *at)] += np.einsum("ngc,gco->ngo", xg[(..., *place)], wg[(..., *k)])
    return out.reshape(shape).astype(x.dtype)


def _lower_transpose(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    """Each output gathers the inputs that reach it: position (out + before - k * dilation) must be a multiple of the stride."""
    x, w = buffers
    assert isinstance(info, TensorInfo)
    t, rank, group = accumulator(info.dtype), x.rank - 2, attrs["group"]
    channels = x.shape[1] // group

    def term(*i: Expr) -> Expr:
        n, o, space, c, k = i[0], i[1], i[2 : 2 + rank], i[2 + rank], i[3 + rank :]
        places, inside = [], []
        for s, kk, st, dl, p, d in zip(space, k, attrs["strides"], attrs["dilations"], attrs["before"], x.shape[2:], strict=True):
            reach = s + const(p) - kk * dl
            places.append(reach // st)
            inside += [ge(reach, 0), lt(reach // st, d)]
            if st != 1:
                inside.append(eq(reach % st, 0))
        channel = c if group == 1 else o // w.shape[1] * channels + c
        inner = o if group == 1 else o % w.shape[1]
        return select(logical_and(*inside), cast(x[(n, channel, *places)], t), const(0, t)) * cast(w[(channel, inner, *k)], t)

    total = b.reduce("conv", info.shape, [channels, *w.shape[2:]], t, "sum", term)
    return total if t == info.dtype else b.compute("rounded", total.shape, info.dtype, lambda *i: cast(total[i], info.dtype))


CONV_OPS: dict[str, OpDef] = table(
    OpDef("conv", _infer, _numpy, _lower, FusionKind.OUTPUT_FUSIBLE),
    OpDef("conv_transpose", _infer_transpose, _numpy_transpose, _lower_transpose, FusionKind.OUTPUT_FUSIBLE),
)

