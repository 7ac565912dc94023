"""Schedule primitives keep the meaning (interpreter before and after), refuse what is illegal, and leave a trace that replays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from everport.ir.dtype import f32
from everport.ir.errors import ScheduleError
from everport.ir.node import structural_equal
from everport.targets import parse_target
from everport.tir.arith import IndexMap
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, Var, const, maximum
from everport.tir.func import PrimFunc
from everport.tir.interp import call as interpret
from everport.tir.intrin import call
from everport.tir.lower import lower
from everport.tir.rules import schedule, schedule_trace
from everport.tir.schedule import PRIMITIVES, Schedule, parse_trace
from everport.tir.verify import verify


def matmul(m: int | Expr, n: int | Expr, k: int | Expr) -> PrimFunc:
    b = FuncBuilder("matmul")
    x, w = b.input("x", (m, k), f32), b.input("w", (k, n), f32)
    t = b.reduce("t", (m, n), (k,), f32, "sum", lambda i, j, r: x[i, r] * w[r, j])
    b.output(b.compute("y", (m, n), f32, lambda i, j: maximum(t[i, j], const(0, f32))))
    return b.finish()


def rows(m: int | Expr, n: int) -> PrimFunc:
    b = FuncBuilder("rows")
    x = b.input("x", (m, n), f32)
    e = b.compute("e", (m, n), f32, lambda i, j: call("exp", x[i, j]))
    s = b.reduce("s", (m,), (n,), f32, "sum", lambda i, r: e[i, r])
    b.output(b.compute("y", (m, n), f32, lambda i, j: e[i, j] / s[i]))
    return b.finish()


def arrays(func: PrimFunc, sizes: list[int]) -> list[np.ndarray]:
    values = dict(zip(func.scalars, sizes, strict=True))
    source = np.random.default_rng(0)
    from everport.tir.interp import evaluate

    return [source.standard_normal([evaluate(d, values) for d in b.shape]).astype(np.float32) for b in func.inputs]


def same_meaning(before: PrimFunc, after: PrimFunc, sizes: list[int], exact: bool = True) -> None:
    verify(after)
    inputs = arrays(before, sizes)
    expected, got = interpret(before, inputs, sizes)[0], interpret(after, inputs, sizes, order="random")[0]
    if exact:
        np.testing.assert_array_equal(got, expected)
    else:
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def tiled(s: Schedule) -> None:
    i, j, k = s.get_loops("t")
    io, ii = s.split(i, (None, 4))
    jo, ji = s.split(j, (None, 8))
    s.reorder(io, jo, k, ii, ji)
    s.decompose_reduction("t", k)
    s.parallel(io)
    s.vectorize(ji)
    s.unroll(ii)


def cached(s: Schedule) -> None:
    i, _, _ = s.get_loops("t")
    s.cache_read("t", "w", "local")
    copy = s.cache_write("y", "local")
    s.reverse_compute_at(copy, s.get_loops("y")[0])
    s.reverse_compute_at("y", i)


def inlined(s: Schedule) -> None:
    s.compute_inline("e")


def at_rows(s: Schedule) -> None:
    row = s.get_loops("y")[0]
    s.compute_at("s", row)
    s.compute_at("e", row)
    s.parallel(row)


def factored(s: Schedule) -> None:
    _, r = s.get_loops("s")
    _, lane = s.split(r, (None, 4))
    s.rfactor("s", lane, 1)


def laid_out(s: Schedule) -> None:
    s.transform_layout("t", IndexMap.of(lambda a, b: (b // 4, a, b % 4), 2))
    s.set_scope("t", "local")


def fused_and_cut(s: Schedule) -> None:
    a, b = s.get_loops("y")
    f = s.fuse(a, b)
    main, _ = s.loop_partition(f, 40)
    s.split(main, (5, None))
    s.annotate("y", "note", 1)


def bound(s: Schedule) -> None:
    a, b = s.get_loops("y")
    s.bind(a, "blockIdx.x")
    s.bind(b, "threadIdx.x")


def split_apart(s: Schedule) -> None:
    i, j, _ = s.get_loops("t")
    s.reverse_compute_at("y", j)
    s.fission(i)


def tensorized(s: Schedule) -> None:
    i, j, k = s.get_loops("t")
    _, ji = s.split(j, (None, 8))
    s.reorder(k, ji)
    s.decompose_reduction("t", k)
    s.tensorize(ji, "fma_f32x8")
    assert i in s.get_loops("t_o")


CASES: dict[str, tuple[Callable[[Schedule], None], PrimFunc, list[int], bool]] = {
    "tiled": (tiled, matmul(12, 16, 5), [], True),
    "tiled with tails": (tiled, matmul(13, 17, 5), [], True),
    "tiled symbolic": (tiled, matmul(Var("m"), 16, Var("k")), [7, 3], True),
    "cached": (cached, matmul(6, 8, 5), [], True),
    "inlined": (inlined, rows(5, 12), [], True),
    "at rows": (at_rows, rows(Var("m"), 12), [5], True),
    "factored": (factored, rows(5, 12), [], False),
    "laid out": (laid_out, matmul(6, 8, 5), [], True),
    "fused and cut": (fused_and_cut, matmul(6, 8, 5), [], True),
    "bound": (bound, matmul(6, 8, 5), [], True),
    "split apart": (split_apart, matmul(6, 8, 5), [], True),
    "tensorized": (tensorized, matmul(3, 16, 5), [], False),
}


@pytest.mark.parametrize("name", CASES)
def test_meaning_and_trace(name: str) -> None:
    steps, func, sizes, exact = CASES[name]
    s = Schedule(func)
    steps(s)
    same_meaning(func, s.func, sizes, exact)
    text = s.trace.script()
    replayed = parse_trace(text).apply(func, Schedule)
    assert structural_equal(replayed, s.func)
    if "threadIdx" not in text:
        device = lower(s.func)
        verify(device)


def test_every_primitive_is_used_here() -> None:
    used = "".join(_trace(steps, func) for steps, func, _, _ in CASES.values())
    elsewhere = {"reverse_compute_inline", "blockize"}  # below, and inside tensorize
    missing = [p for p in PRIMITIVES if f"{p}(" not in used and p not in elsewhere]
    assert not missing


def _trace(steps: Callable[[Schedule], None], func: PrimFunc) -> str:
    s = Schedule(func)
    steps(s)
    return s.trace.script()


def test_reverse_compute_inline() -> None:
    b = FuncBuilder("chain")
    x = b.input("x", (4, 6), f32)
    a = b.compute("a", (6, 4), f32, lambda i, j: x[j, i] * 2)
    b.output(b.compute("y", (6, 4), f32, lambda i, j: a[i, j] + 1))
    func = b.finish()
    s = Schedule(func)
    s.reverse_compute_inline("y")
    assert len(s.blocks()) == 1
    same_meaning(func, s.func, [])


REFUSED: dict[str, tuple[Callable[[Schedule], object], str]] = {
    "parallel over a reduction": (lambda s: s.parallel(s.get_loops("t")[2]), "drives the reduce iterator"),
    "vectorize too wide": (lambda s: s.vectorize(s.get_loops("y")[0]), "at most 64"),
    "factors too small": (lambda s: s.split(s.get_loops("t")[0], (2, 3)), "cover 6 of the 100"),
    "two open factors": (lambda s: s.split(s.get_loops("t")[0], (None, None)), "one may be None"),
    "fuse loops apart": (lambda s: s.fuse(s.get_loops("t")[0], s.get_loops("t")[2]), "not directly inside"),
    "reorder across nests": (lambda s: s.reorder(s.get_loops("t")[0], s.get_loops("y")[0]), "not on one path"),
    "inline a reduction": (lambda s: s.compute_inline("t"), "not one store over spatial"),
    "inline an output": (lambda s: s.compute_inline("y"), "is a parameter"),
    "unknown block": (lambda s: s.compute_inline("z"), "no block 'z'"),
    "unknown loop": (lambda s: s.parallel(Var("q")), "no loop 'q'"),
    "unknown scope": (lambda s: s.cache_write("t", "moon"), "no scope 'moon'"),
    "unknown axis": (lambda s: s.bind(s.get_loops("y")[0], "threadIdx.q"), "no thread axis"),
    "producer above itself": (lambda s: s.compute_at("y", s.get_loops("t")[0]), "must write one intermediate"),
    "consumer under a reduction": (lambda s: s.reverse_compute_at("y", s.get_loops("t")[2]), "still reduces"),
    "layout with padding": (lambda s: s.transform_layout("t", IndexMap.of(lambda a, b: (a // 7, b, a % 7), 2)), "not bijective"),
    "partition outside": (lambda s: s.loop_partition(s.get_loops("t")[0], 101), "not provably within"),
    "decompose below the reduction": (lambda s: _decompose_late(s), "is outside loop"),
    "unknown intrinsic": (lambda s: s.tensorize(s.get_loops("t")[2], "magic"), "no tensor intrinsic"),
}


def _decompose_late(s: Schedule) -> None:
    i, j, k = s.get_loops("t")
    s.reorder(k, i, j)
    s.decompose_reduction("t", i)


@pytest.mark.parametrize("name", REFUSED)
def test_illegal_uses_are_refused(name: str) -> None:
    attempt, words = REFUSED[name]
    s = Schedule(matmul(100, 8, 5))
    with pytest.raises(ScheduleError, match=words):
        attempt(s)
    verify(s.func)


@pytest.mark.parametrize(
    ("func", "sizes"),
    [
        (matmul(13, 37, 8), []),
        (matmul(Var("m"), 40, 9), [11]),
        (matmul(7, Var("n"), 9), [29]),
        (matmul(Const(1), 64, 16), []),
        (rows(5, 64), []),
        (rows(Var("m"), 10), [3]),
    ],
)
def test_default_rules_keep_the_meaning(func: PrimFunc, sizes: list[int]) -> None:
    target = parse_target("cpu:x86-64-v3")
    after = schedule(func, target)
    same_meaning(func, after, sizes, exact=False)
    trace = schedule_trace(func, target)
    assert structural_equal(parse_trace(trace.script()).apply(func, Schedule), after)
