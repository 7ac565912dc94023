"""Gathers, scatters, one-hot, reversal and top-k."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, boolean, f16, f32, i8, i32, i64
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.index import INDEX_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, M, K = Var("n"), Var("m"), Var("k")
SIZES = ({N: 5, M: 4, K: 3}, {N: 1, M: 1, K: 7}, {N: 6, M: 2, K: 0})


def test_every_row_is_here() -> None:
    gathers = {"gather", "gather_elements", "gather_nd"}
    assert {*gathers, "scatter_elements", "scatter_nd", "one_hot", "reverse_sequence", "topk"} == set(INDEX_OPS)


def index(shape: tuple, below: int = 1, t: DType = i64) -> Arg:
    """Indices of an extent that is at least `below`, from both ends."""
    return Arg(shape, t, lambda s, rng: rng.integers(-below, below, s))


def test_gather() -> None:
    cases = [
        Case("gather", (Arg((N, M), t), index(shape, 1, it)), {"axis": axis}, SIZES)
        for t, it in ((f32, i64), (f16, i32), (boolean, i64), (i8, i32))
        for axis in (0, 1)
        for shape in ((K,), (), (2, K))
    ]
    wide = [Case("gather", (Arg((7, N)), index((3, K), 7)), {"axis": 0}, SIZES), Case("gather", (Arg((N, 7)), index((K,), 7)), {"axis": 1}, SIZES)]
    check_cases([*cases, *wide])


def test_out_of_range_indices_stay_inside() -> None:
    wild = Arg((4,), i64, lambda s, _: np.array([-(2**62), -9, 9, 2**62]))
    check_cases([Case("gather", (Arg((5, 3)), wild), {"axis": 0})])


def test_gather_elements() -> None:
    cases = [Case("gather_elements", (Arg((7, M)), index((K, M), 7)), {"axis": 0}, SIZES)]
    cases += [Case("gather_elements", (Arg((N, 7), t), index((N, K), 7, i32)), {"axis": 1}, SIZES) for t in (f32, i64)]
    check_cases(cases)


def test_gather_nd() -> None:
    cases = [Case("gather_nd", (Arg((3, 4, M)), index((K, 2), 3)), {"batch_dims": 0, "depth": 2}, SIZES)]
    cases += [Case("gather_nd", (Arg((3, 4, M)), index((K, 1), 3)), {"batch_dims": 0, "depth": 1}, SIZES)]
    cases += [Case("gather_nd", (Arg((N, 4, M)), index((N, K, 1), 4)), {"batch_dims": 1, "depth": 1}, SIZES)]
    cases += [Case("gather_nd", (Arg((N, M, 3)), index((N, M, 1), 3)), {"batch_dims": 2, "depth": 1}, SIZES)]
    cases += [Case("gather_nd", (Arg((3, 4)), index((K, 2), 3)), {"batch_dims": 0, "depth": 2}, SIZES)]
    check_cases(cases)


def places(shape: tuple, extent: int, axis: int) -> Arg:
    """Indices without repeats along `axis`, from both ends."""

    def make(s: tuple, rng: np.random.Generator) -> np.ndarray:
        order = np.argsort(rng.random((*s[:axis], extent, *s[axis + 1 :])), axis)
        return np.take(order, range(s[axis]), axis) - extent * rng.integers(0, 2, s)

    return Arg(shape, i64, make)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter(reduction: str) -> None:
    how, cases = {"reduction": reduction}, []
    for t in (f32, i32):
        cases += [Case("scatter_elements", (Arg((8, M), t), places((K, M), 8, 0), Arg((K, M), t)), {"axis": 0, **how}, SIZES)]
        cases += [Case("scatter_elements", (Arg((N, 8), t), places((N, K), 8, 1), Arg((N, K), t)), {"axis": 1, **how}, SIZES)]
        # repeated places: the last one wins, or all combine
        cases += [Case("scatter_elements", (Arg((3,), t), index((9,), 3), Arg((9,), t)), {"axis": 0, **how})]
        cases += [Case("scatter_nd", (Arg((5, 4, M), t), index((K, 2), 4), Arg((K, M), t)), {"depth": 2, **how}, SIZES)]
        cases += [Case("scatter_nd", (Arg((5, M), t), index((2, K, 1), 5), Arg((2, K, M), t)), {"depth": 1, **how}, SIZES)]
    check_cases(cases)


def test_one_hot() -> None:
    cases = [
        Case("one_hot", (index((N, K), 6, it), Arg((2,), t)), {"axis": axis, "depth": 5}, SIZES)
        for it, t, axis in ((i64, f32, 2), (i32, i64, 0), (i64, boolean, 1))
    ]
    check_cases([*cases, Case("one_hot", (index((K,), 3), Arg((2,))), {"axis": 1, "depth": N}, SIZES)])


@pytest.mark.parametrize("batch, time", [(0, 1), (1, 0)])
def test_reverse_sequence(batch: int, time: int) -> None:
    shape = (4, 9, M) if batch == 0 else (9, 4, M)
    lengths = Arg((4,), i64, lambda s, _: np.array([0, 1, 5, 9]))
    check_cases([Case("reverse_sequence", (Arg(shape), lengths), {"batch_axis": batch, "time_axis": time}, SIZES)])


@pytest.mark.parametrize("largest", [0, 1])
def test_topk(largest: int) -> None:
    ties = [Arg((N, 9), t, lambda s, rng: rng.integers(0, 4, s)) for t in (f32, i32)]
    cases = [Case("topk", (x,), {"axis": 1, "k": k, "largest": largest}, SIZES) for x in ties for k in (1, 4, 9)]
    cases += [Case("topk", (Arg((9, M)),), {"axis": 0, "k": 3, "largest": largest}, SIZES)]
    check_cases([*cases, Case("topk", (Arg((3, N)),), {"axis": 1, "k": N, "largest": largest}, SIZES)])


def test_topk_takes_nan_for_the_greatest() -> None:
    x = Arg((2, 7), f32, lambda s, _: np.array([[1, np.nan, 3, -np.inf, np.nan, np.inf, 2], [np.nan] * 7]))
    check_cases([Case("topk", (x,), {"axis": 1, "k": k, "largest": largest}) for k in (2, 7) for largest in (0, 1)])


def test_float_indices_are_refused() -> None:
    b = Builder()
    x = b.param("x", TensorInfo((4, 2), f32))
    for op, attrs in (("gather", {"axis": 0}), ("gather_elements", {"axis": 0}), ("gather_nd", {"batch_dims": 0, "depth": 2})):
        with pytest.raises(CompileError, match=f"{op}: indices must be integers, not f32"):
            b.emit(op, x, x, **attrs)
