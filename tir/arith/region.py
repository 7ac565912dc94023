"""Regions of buffers: images of loops, unions, containment."""

from __future__ import annotations

from collections.abc import Iterable

from everport.tir.arith.analyzer import Analyzer
from everport.tir.buffer import Range, Region
from everport.tir.expr import Const, Var, binary


def eval_region(region: Region, over: Iterable[Var], analyzer: Analyzer) -> Region:
    """The smallest box that covers `region` for all values of the variables `over` (bound in the analyzer); a dimension
    whose ends cannot be told becomes the whole dimension."""
    variables = list(over)
    ranges = []
    for r, extent in zip(region.ranges, region.buffer.shape, strict=True):
        lo = analyzer.symbolic_bounds(r.min, variables)[0]
        hi = analyzer.symbolic_bounds(r.min + r.extent - 1, variables)[1]
        if lo is None or hi is None:
            ranges.append(Range(Const(0), extent))
        else:
            ranges.append(Range(lo, analyzer.simplify(hi - lo + 1)))
    return Region(region.buffer, tuple(ranges))


def region_union(a: Region, b: Region, analyzer: Analyzer) -> Region:
    """The smallest box around two regions of one buffer."""
    ranges = []
    for x, y in zip(a.ranges, b.ranges, strict=True):
        lo = analyzer.simplify(binary("min", x.min, y.min))
        hi = analyzer.simplify(binary("max", x.min + x.extent, y.min + y.extent))
        ranges.append(Range(lo, analyzer.simplify(hi - lo)))
    return Region(a.buffer, tuple(ranges))


def region_covers(a: Region, b: Region, analyzer: Analyzer) -> bool:
    """True if `a` is proved to contain `b`."""
    return all(
        analyzer.can_prove(binary("<=", x.min, y.min))
        and analyzer.can_prove(binary(">=", x.min + x.extent, y.min + y.extent))
        for x, y in zip(a.ranges, b.ranges, strict=True)
    )
