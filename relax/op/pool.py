"""Pooling over spatial axes: max (with positions), average, and p-norm.

Attributes: kernel, strides, dilations (tuples of ints), before, after (pads), ceil_mode; average: count_include_pad; lp: p.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import i64
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.op.conv import pad_spatial
from everport.relax.op.reduce import accumulator
from everport.relax.op.shape import flat_index, unflatten
from everport.relax.op.unary import widened
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, cast, const, eq, ge, logical_and, logical_or, lt, maximum, minimum, select
from everport.tir.intrin import call


def pool_extent(ctx: InferContext, d: Expr, k: int, s: int, dl: int, p: Any, q: Any, ceil: bool) -> Expr:
    """The extent of the output along one axis; with `ceil` the last window must start inside the input or its left pad."""
    span = (k - 1) * dl + 1
    room = d + const(p) + const(q) - span
    if not ceil:
        return ctx.simplify(room // s + 1)
    full = (room + (s - 1)) // s + 1
    # A window that starts in the right padding is dropped.
    return ctx.simplify(select(ge((full - 1) * s, d + const(p)), full - 1, full))


def _spatial(ctx: InferContext, x: TensorInfo, attrs: Mapping[str, Any]) -> list[Expr]:
    return [
        pool_extent(ctx, d, k, s, dl, p, q, bool(attrs["ceil_mode"]))
        for d, k, s, dl, p, q in zip(
            x.shape[2:], attrs["kernel"], attrs["strides"], attrs["dilations"], attrs["before"], attrs["after"], strict=True
        )
    ]


def _infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> StructInfo:
    x = infos[0]
    result = TensorInfo((*x.shape[:2], *_spatial(ctx, x, attrs)), x.dtype)
    return TupleInfo((result, TensorInfo(result.shape, i64))) if attrs.get("positions") else result


def _windows(attrs: Mapping[str, Any], x: np.ndarray, fill: Any) -> Any:
    """The padded input and, for each kernel place, the slice that all windows see there."""
    shape = attrs["out_shape"][2:]
    widths = [(0, 0), (0, 0)]
    for d, e, k, s, dl, p in zip(x.shape[2:], shape, attrs["kernel"], attrs["strides"], attrs["dilations"], attrs["before"], strict=True):
        widths.append((p, max(0, (e - 1) * s + (k - 1) * dl + 1 - d - p)))
    padded = np.pad(x, widths, constant_values=fill)
    for place in itertools.product(*(range(k) for k in attrs["kernel"])):
        window = tuple(
            slice(q * dl, q * dl + (e - 1) * s + 1, s)
            for q, dl, s, e in zip(place, attrs["dilations"], attrs["strides"], shape, strict=True)
        )
        yield padded[(slice(None), slice(None), *window)]


def _lowest(t: np.dtype) -> Any:
    return -np.inf if t.kind not in "iu" else np.iinfo(t).min


def _numpy_max(attrs: Mapping[str, Any], x: np.ndarray) -> Any:
    wide = widened(x)
    best = np.full(attrs["out_shape"], _lowest(wide.dtype), wide.dtype)
    position = np.zeros(attrs["out_shape"], np.int64)
    spatial = x.shape[2:]
    places = np.arange(math.prod(spatial)).reshape(spatial)
    if attrs.get("column_major"):
        places = np.arange(math.prod(spatial)).reshape(spatial[::-1]).T
    image = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1 for _ in spatial)) * math.prod(spatial)
    numbered = np.broadcast_to(places, x.shape) + image
    for values, at in zip(_windows(attrs, wide, _lowest(wide.dtype)), _windows(attrs, numbered, -1), strict=True):
        better = values > best
        best = np.where(better, values, best)
        position = np.where(better, at, position)
    result = best.astype(x.dtype)
    return (result, position) if attrs.get("positions") else result


def _places(i: Sequence[Expr], rank: int, attrs: Mapping[str, Any]) -> list[Expr]:
    space, k = i[2 : 2 + rank], i[2 + rank :]
    return [s * st + kk * dl for s, kk, st, dl in zip(space, k, attrs["strides"], attrs["dilations"], strict=True)]


def _padded_for(b: FuncBuilder, x: Buffer, shape: Sequence[Expr], attrs: Mapping[str, Any], fill: Expr) -> Buffer:
    """Pads so that every window lies inside (ceil mode reaches past the declared padding)."""
    after = []
    for d, e, k, s, dl, p, q in zip(
        x.shape[2:], shape, attrs["kernel"], attrs["strides"], attrs["dilations"], attrs["before"], attrs["after"], strict=True
    ):
        needed = (e - 1) * s + ((k - 1) * dl + 1) - d - const(p)
        after.append(maximum(needed, 0) if attrs["ceil_mode"] else q)
    return pad_spatial(b, x, attrs["before"], after, fill)


def _lower_max(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Any:
    x = buffers[0]
    first = info.fields[0] if isinstance(info, TupleInfo) else info
    assert isinstance(first, TensorInfo)
    rank = x.rank - 2
    low = const(-math.inf if x.dtype.is_float else x.dtype.min_value, x.dtype)
    padded = _padded_for(b, x, first.shape[2:], attrs, low)
    best = b.reduce(
        "max_pool", first.shape, attrs["kernel"], x.dtype, "max", lambda *i: padded[(*i[:2], *_places(i, rank, attrs))]
    )
    if not attrs.get("positions"):
        return best
    total: Expr = Const(1)
    for d in x.shape[2:]:
        total = total * d

    def position(*i: Expr) -> Expr:
        at = _places(i, rank, attrs)
        own = [a - const(p) for a, p in zip(at, attrs["before"], strict=True)]
        pairs = list(zip(own, x.shape[2:], strict=True))
        inside = [c for v, d in pairs for c in (ge(v, 0), lt(v, d))]
        value = padded[(*i[:2], *at)]
        same = eq(value, best[i[: 2 + rank]])
        if x.dtype.is_float:
            same = logical_or(same, call("isnan", value))
        return select(logical_and(same, *inside), (i[0] * x.shape[1] + i[1]) * total + flat_index(own, x.shape[2:]), const(2**62))

    # Of equal values the first in row-major order counts, in whichever order positions are numbered.
    positions = b.reduce("position", first.shape, attrs["kernel"], i64, "min", position)
    if attrs.get("column_major"):
        rows = positions

        def renumbered(*i: Expr) -> Expr:
            place = unflatten(rows[i] % total, x.shape[2:])
            return rows[i] // total * total + flat_index(place[::-1], x.shape[2:][::-1])

        positions = b.compute("column_major", first.shape, i64, renumbered)
    return best, positions


def _numpy_average(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    wide = widened(x)
    total = sum(_windows(attrs, wide, 0))
    ones = np.ones((1, 1, *x.shape[2:]), wide.dtype)
    if attrs["count_include_pad"]:
        ones = np.pad(ones, [(0, 0), (0, 0), *zip(attrs["before"], attrs["after"], strict=True)], constant_values=1)
        count = sum(_windows({**attrs, "before": (0,) * (x.ndim - 2)}, ones, 0))
    else:
        count = sum(_windows(attrs, ones, 0))
    return (total / count).astype(x.dtype)


def _lower_average(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)
    rank, t = x.rank - 2, accumulator(x.dtype)
    padded = _padded_for(b, x, info.shape[2:], attrs, const(0, x.dtype))
    total = b.reduce(
        "sum_pool", info.shape, attrs["kernel"], t, "sum", lambda *i: cast(padded[(*i[:2], *_places(i, rank, attrs))], t)
    )

    def count(*i: Expr) -> Expr:
        result: Expr = Const(1)
        for v, d, k, s, dl, p, q in zip(
            i[2:], x.shape[2:], attrs["kernel"], attrs["strides"], attrs["dilations"], attrs["before"], attrs["after"], strict=True
        ):
            start = v * s - const(p)
            lo = const(0) - const(p) if attrs["count_include_pad"] else const(0)
            hi = d + const(q) if attrs["count_include_pad"] else d
            # kernel places j with lo <= start + j * dl < hi
            first = maximum((lo - start + (dl - 1)) // dl, 0)
            last = minimum((hi - 1 - start) // dl, k - 1)
            result = result * (last - first + 1)
        return result

    needs_count = attrs["ceil_mode"] or (
        not attrs["count_include_pad"] and any(not (isinstance(p, int) and p == 0) for p in (*attrs["before"], *attrs["after"]))
    )
    size = const(math.prod(attrs["kernel"]))
    return b.compute(
        "average_pool",
        info.shape,
        x.dtype,
        lambda *i: cast(total[i] / cast(count(*i) if needs_count else size, t), x.dtype),
    )


def _numpy_lp(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
    wide, p = np.abs(widened(x)), attrs["p"]
    return (sum(w**p for w in _windows(attrs, wide, 0)) ** (1 / p)).astype(x.dtype)


def _lower_lp(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, p = buffers[0], attrs["p"]
    assert isinstance(info, TensorInfo)
    rank, t = x.rank - 2, accumulator(x.dtype)
    padded = _padded_for(b, x, info.shape[2:], attrs, const(0, x.dtype))

    def power(v: Expr) -> Expr:
        size = call("abs", cast(v, t))
        return size if p == 1 else size * size if p == 2 else call("pow", size, const(p, t))

    total = b.reduce("lp", info.shape, attrs["kernel"], t, "sum", lambda *i: power(padded[(*i[:2], *_places(i, rank, attrs))]))

    def root(v: Expr) -> Expr:
        return v if p == 1 else call("sqrt", v) if p == 2 else call("pow", v, const(1 / p, t))

    return b.compute("lp_pool", info.shape, x.dtype, lambda *i: cast(root(total[i]), x.dtype))


POOL_OPS: dict[str, OpDef] = table(
    OpDef("max_pool", _infer, _numpy_max, _lower_max, FusionKind.REDUCTION),
    OpDef("average_pool", _infer, _numpy_average, _lower_average, FusionKind.REDUCTION),
    OpDef("lp_pool", _infer, _numpy_lp, _lower_lp, FusionKind.REDUCTION),
)
