"""arith is sound: simplified expressions keep their value, bounds contain it, proofs hold, maps invert; by enumeration."""

from __future__ import annotations

import itertools
import random

import pytest

from everport.tir.arith import Analyzer, IndexMap, IterMapError, detect_iter_map
from everport.tir.expr import Expr, Var, binary, const, eq, lt, substitute
from everport.tir.interp import InterpError, evaluate

X, Y, N = Var("x"), Var("y"), Var("n")
RANGES = {X: range(5), Y: range(-3, 4), N: range(1, 5)}
POINTS = [dict(zip(RANGES, p, strict=True)) for p in itertools.product(*RANGES.values())]


def analyzer() -> Analyzer:
    a = Analyzer()
    for v, r in RANGES.items():
        a.bind(v, r[0], r[-1])
    return a


def random_expr(rng: random.Random, depth: int) -> Expr:
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([X, Y, N, const(rng.randint(-6, 9))])
    op = rng.choice(["+", "+", "-", "*", "//", "%", "min", "max"])
    a, b = random_expr(rng, depth - 1), random_expr(rng, depth - 1)
    if op in ("//", "%"):
        b = rng.choice([const(rng.choice([1, 2, 3, 4, 8, 12])), N])
    return binary(op, a, b)


@pytest.mark.parametrize("seed", range(200))
def test_simplify_bounds_and_proofs(seed: int) -> None:
    rng = random.Random(seed)
    e, f = random_expr(rng, 4), random_expr(rng, 3)
    a = analyzer()
    simple, (lo, hi) = a.simplify(e), a.bounds(e)
    less, same, (divisor, rest) = a.can_prove(lt(e, f)), a.can_prove(eq(e, f)), a.modular(e)
    for point in POINTS:
        try:
            value, other = evaluate(e, point), evaluate(f, point)
        except InterpError:
            continue
        assert evaluate(simple, point) == value, (str(e), str(simple), point)
        assert (lo is None or lo <= value) and (hi is None or value <= hi), (str(e), lo, hi, value)
        assert not less or value < other
        assert not same or value == other
        assert value == rest if divisor == 0 else (value - rest) % divisor == 0


def test_canonical_forms_are_identical() -> None:
    a = analyzer()
    assert a.simplify(X * 3 + Y - X) is a.simplify(Y + X * 2)
    assert a.simplify((X * 8 + N - 1) // 8) is X
    assert a.simplify(X // 2 * 2 + X % 2) is X
    assert a.simplify((X * N + N) // N) is a.simplify(X + 1)


def test_loops_of_symbolic_extent() -> None:
    a, i, j = Analyzer(), Var("i"), Var("j")
    a.bind(N, 0, None)
    a.bind_extent(i, N)
    a.bind_extent(j, 16)
    assert a.can_prove(lt(i, N)) and a.can_prove(lt(i * 16 + j, N * 16))
    assert not a.can_prove(lt(i, N - 1))
    assert a.can_prove(binary("<=", N // 16 * 16, N)) and a.can_prove(binary("<=", (N + 1) // 2 // 16 * 16, (N + 1) // 2))


MAPS = [
    (lambda p, q: (q, p), (4, 6)),
    (lambda p, q: (p // 2, q, p % 2), (4, 6)),
    (lambda p, q: (p * 6 + q,), (4, 6)),
    (lambda p, q: (q // 3, p, q % 3), (4, 6)),
]


@pytest.mark.parametrize("number", range(len(MAPS)))
def test_index_maps_invert(number: int) -> None:
    function, shape = MAPS[number]
    forward = IndexMap.of(function, len(shape))
    back, image = forward.inverse(shape), [evaluate(e, {}) for e in forward.map_shape(shape)]
    seen = set()
    for point in itertools.product(*map(range, shape)):
        there = tuple(evaluate(substitute(e, dict(zip(forward.initial, map(const, point), strict=True))), {}) for e in forward.final)
        assert all(0 <= t < d for t, d in zip(there, image, strict=True))
        again = tuple(evaluate(substitute(e, dict(zip(back.initial, map(const, there), strict=True))), {}) for e in back.final)
        assert again == point
        seen.add(there)
    assert len(seen) == shape[0] * shape[1]


@pytest.mark.parametrize("index", [lambda p: p // 3, lambda p: p * 2, lambda p: p % 2, lambda p: p * p])
def test_maps_that_are_not_bijective(index) -> None:  # noqa: ANN001
    v = Var("v")
    with pytest.raises(IterMapError):
        detect_iter_map([index(v)], {v: const(4)}, bijective=True)
