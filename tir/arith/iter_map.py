"""Quasi-affine iterator maps: which part of which loop an index expression is, and the way back.

An index is a sum of splits: split = (source // lower) % extent, times a scale (TVM's iterator map analysis, Feng et al. 2023,
section 3.3). A map is bijective when every source is covered once, without overlap, by the splits of all indices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from everport.ir.errors import CompileError
from everport.tir.arith.analyzer import Analyzer
from everport.tir.expr import (
    Binary,
    Const,
    Expr,
    ExprLike,
    Var,
    as_int,
    const,
    substitute,
)


class IterMapError(CompileError):
    """The expressions are no quasi-affine map of the iterators; the message says why."""


@dataclass(frozen=True, slots=True)
class IterSplit:
    """scale * ((source // lower) % extent)."""

    source: Var
    lower: Expr
    extent: Expr
    scale: Expr


@dataclass(frozen=True, slots=True)
class IterSum:
    """The sum of splits plus a base that has no iterator in it."""

    splits: tuple[IterSplit, ...]
    base: Expr


def detect_iter_map(
    indices: Sequence[Expr],
    iters: Mapping[Var, ExprLike],
    analyzer: Analyzer | None = None,
    *,
    bijective: bool = False,
) -> tuple[IterSum, ...]:
    """Each index as a sum of splits of `iters` (variable -> extent). With `bijective`, splits must cover every iterator
    (of extent other than 1) exactly once. Raises IterMapError with the reason."""
    own = (analyzer or Analyzer()).copy()
    extents = {v: const(e) for v, e in iters.items()}
    for v, e in extents.items():
        own.bind_extent(v, e)
    sums = tuple(_sum_of(own.simplify(index), extents, own) for index in indices)
    if bijective:
        _check_cover(sums, extents, own)
    return sums


def _sum_of(index: Expr, extents: Mapping[Var, Expr], analyzer: Analyzer) -> IterSum:
    form = analyzer.linear(index)
    splits: list[IterSplit] = []
    base: Expr = Const(form.const)
    for atom, k in form.terms.items():
        used = [v for v in extents if _uses(atom, v)]
        if not used:
            base = base + atom * k
            continue
        splits.append(_split_of(atom, Const(k), extents, analyzer, index))
    return IterSum(tuple(splits), analyzer.simplify(base))


def _uses(e: Expr, v: Var) -> bool:
    return substitute(e, {v: Const(0)}) is not e


def _split_of(atom: Expr, scale: Expr, extents: Mapping[Var, Expr], analyzer: Analyzer, index: Expr) -> IterSplit:
    """Reads an atom as scale * ((v // lower) % extent)."""
    if isinstance(atom, Var):
        return IterSplit(atom, Const(1), extents[atom], scale)
    if isinstance(atom, Binary) and atom.op == "*":
        for inner, factor in ((atom.a, atom.b), (atom.b, atom.a)):
            if not any(_uses(factor, v) for v in extents):
                return _split_of(inner, scale * factor, extents, analyzer, index)
    if isinstance(atom, Binary) and atom.op in ("//", "%") and not any(_uses(atom.b, v) for v in extents):
        inner = analyzer.linear(atom.a)
        if len(inner.terms) == 1 and not inner.const:
            part, k = next(iter(inner.terms.items()))
            if k == 1:
                below = _split_of(part, Const(1), extents, analyzer, index)
                if as_int(below.scale) == 1:
                    if atom.op == "//":
                        extent = analyzer.simplify((below.extent + atom.b - 1) // atom.b)
                        return IterSplit(below.source, analyzer.simplify(below.lower * atom.b), extent, scale)
                    return IterSplit(below.source, below.lower, atom.b, scale)
    raise IterMapError(f"{index} is not a sum of quotients and remainders of its iterators: {atom}")


def _check_cover(sums: Sequence[IterSum], extents: Mapping[Var, Expr], analyzer: Analyzer) -> None:
    by_source: dict[Var, list[IterSplit]] = {v: [] for v in extents}
    for total in sums:
        for split in total.splits:
            by_source[split.source].append(split)
    for var, splits in by_source.items():
        if as_int(extents[var]) == 1 and not splits:
            continue
        expected: Expr = Const(1)
        remaining = list(splits)
        while remaining:
            fitting = [s for s in remaining if analyzer.can_prove_equal(s.lower, expected)]
            if not fitting:
                raise IterMapError(f"parts of iterator {var} overlap or leave a gap at factor {expected}")
            remaining.remove(fitting[0])
            expected = analyzer.simplify(expected * fitting[0].extent)
        if not analyzer.can_prove_equal(expected, extents[var]):
            raise IterMapError(f"the indices use {expected} of the {extents[var]} values of iterator {var}")
    for total in sums:
        _check_strides(total, analyzer)


def _check_strides(total: IterSum, analyzer: Analyzer) -> None:
    """Within one index the splits must nest: each scale is the product of the extents below it."""
    expected: Expr = Const(1)
    remaining = list(total.splits)
    while remaining:
        fitting = [s for s in remaining if analyzer.can_prove_equal(s.scale, expected)]
        if not fitting:
            raise IterMapError(f"the parts of an index do not nest: no part has stride {expected}")
        remaining.remove(fitting[0])
        expected = analyzer.simplify(expected * fitting[0].extent)


def inverse_iter_map(
    indices: Sequence[Expr], iters: Mapping[Var, ExprLike], outputs: Sequence[Var], analyzer: Analyzer | None = None
) -> dict[Var, Expr]:
    """The iterators in terms of `outputs` (one variable an index) for a bijective map."""
    own = (analyzer or Analyzer()).copy()
    sums = detect_iter_map(indices, iters, own, bijective=True)
    result: dict[Var, Expr] = {v: Const(0) for v in iters}
    for total, out in zip(sums, outputs, strict=True):
        ordered = sorted(total.splits, key=lambda s: as_int(s.scale) or 0)
        for split in ordered:
            value = (out - total.base) // split.scale
            outermost = (split is ordered[-1] and len(ordered) > 1) or len(ordered) == 1
            if not outermost:
                value = value % split.extent
            result[split.source] = result[split.source] + value * split.lower
    return {v: own.simplify(e) for v, e in result.items()}


@dataclass(frozen=True, slots=True)
class IndexMap:
    """A bijective change of coordinates: `initial` variables to `final` expressions of them.

    IndexMap.of(lambda n, c, h, w: (n, c // 16, h, w, c % 16), 4)
    """

    initial: tuple[Var, ...]
    final: tuple[Expr, ...]

    @staticmethod
    def of(function: Callable[..., Sequence[ExprLike]], rank: int) -> IndexMap:
        variables = tuple(Var(f"d{k}") for k in range(rank))
        return IndexMap(variables, tuple(const(e) for e in function(*variables)))

    def map_indices(self, indices: Sequence[ExprLike], analyzer: Analyzer | None = None) -> tuple[Expr, ...]:
        """Where a point goes."""
        mapping = {v: const(i) for v, i in zip(self.initial, indices, strict=True)}
        own = analyzer or Analyzer()
        return tuple(own.simplify(substitute(e, mapping)) for e in self.final)

    def map_shape(self, shape: Sequence[ExprLike]) -> tuple[Expr, ...]:
        """The extents of the image; an IterMapError if the map is not bijective on `shape`."""
        extents = dict(zip(self.initial, shape, strict=True))
        sums = detect_iter_map(self.final, extents, bijective=True)
        own = Analyzer()
        result = []
        for total in sums:
            extent: Expr = Const(1)
            for split in total.splits:
                extent = extent * split.extent
            result.append(own.simplify(extent))
        return tuple(result)

    def inverse(self, shape: Sequence[ExprLike]) -> IndexMap:
        """The map back from the image of `shape`."""
        outputs = tuple(Var(f"e{k}") for k in range(len(self.final)))
        own = Analyzer()
        for out, extent in zip(outputs, self.map_shape(shape), strict=True):
            own.bind_extent(out, extent)
        found = inverse_iter_map(self.final, dict(zip(self.initial, shape, strict=True)), outputs, own)
        return IndexMap(outputs, tuple(found[v] for v in self.initial))
