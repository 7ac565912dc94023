"""Reductions, positions of extremes, and running sums."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases, specials

from everport.ir.dtype import DType, bf16, boolean, f16, f32, f64, i8, i32, i64, u8
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.reduce import REDUCE_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, M = Var("n"), Var("m")
SIZES = ({N: 5, M: 37}, {N: 1, M: 1}, {N: 0, M: 3}, {N: 3, M: 0})
TYPES = (f16, bf16, f32, f64, i8, i32, i64, u8)
ARITHMETIC = ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_mean")
LOGICAL = ("reduce_any", "reduce_all")
POSITIONS = ("argmax", "argmin")
SCANS = ("cumsum", "cumprod")


def test_every_row_is_here() -> None:
    assert {*ARITHMETIC, *LOGICAL, *POSITIONS, *SCANS} == set(REDUCE_OPS)


def values(name: str, shape: tuple, t: DType) -> Arg:
    """Near one for products, so that they neither vanish nor overflow; small integers."""
    if t.is_bool:
        return Arg(shape, t)
    if name in ("reduce_prod", "cumprod"):
        return Arg(shape, t, lambda s, rng: 1 + 0.2 * rng.standard_normal(s) if t.is_float else rng.integers(1, 3, s))
    return Arg(shape, t)


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic(name: str) -> None:
    cases = [Case(name, (values(name, (4, M), t),), {"axes": (1,), "keepdims": 0}, ({M: 21},)) for t in TYPES]
    shape = (2, N, M)
    for axes in ((2,), (1,), (0, 2), (0, 1, 2), (1, 2), ()):
        cases += [Case(name, (values(name, shape, f32),), {"axes": axes, "keepdims": k}, SIZES) for k in (0, 1)]
    if name == "reduce_mean":  # the mean of nothing is NaN, and of integers undefined
        cases = [Case(c.op, c.args, c.attrs, tuple(s for s in c.sizes if 0 not in s.values())) for c in cases]
    check_cases([*cases, Case(name, (values(name, (), f32),), {"axes": (), "keepdims": 0})])


@pytest.mark.parametrize("name", LOGICAL)
def test_logical(name: str) -> None:
    sizes = (*SIZES, {N: 40, M: 2})
    check_cases(
        [Case(name, (Arg((N, M), boolean),), {"axes": a, "keepdims": k}, sizes) for a in ((0,), (1,), (0, 1)) for k in (0, 1)]
    )


def test_extremes_propagate_nan_and_take_infinities() -> None:
    shape = (N, 16)
    check_cases(
        [
            Case(name, (specials(shape, t),), {"axes": (axis,), "keepdims": 0}, ({N: 9},))
            for name in ("reduce_max", "reduce_min")
            for t in (f16, f32, f64, i64)
            for axis in (0, 1)
        ]
    )


def test_small_floats_accumulate_wide() -> None:
    ones = Arg((1, 5000), f16, lambda s, _: np.ones(s))
    assert REDUCE_OPS["reduce_sum"].numpy({"axes": (1,), "keepdims": 0, "out_dtype": np.float16}, ones.array({}, None))[0] == 5000
    check_cases([Case("reduce_sum", (ones,), {"axes": (1,), "keepdims": 0}, tolerance=(0, 0))])


def test_integer_sums_wrap() -> None:
    big = Arg((3,), i8, lambda s, _: np.array([127, 127, 2]))
    check_cases([Case(name, (big,), {"axes": (0,), "keepdims": 0}) for name in ("reduce_sum", "reduce_prod")])


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("t", [f16, f32, i32, u8], ids=str)
def test_positions(name: str, t: DType) -> None:
    ties = Arg((N, M), t, lambda s, rng: rng.integers(0, 4, s))
    cases = [
        Case(name, (ties,), {"axes": (axis,), "keepdims": keep, "last": last}, ({N: 6, M: 11}, {N: 1, M: 4}))
        for axis, keep, last in ((0, 0, 0), (1, 1, 0), (1, 0, 1), (0, 1, 1))
    ]
    if t.is_float:
        cases.append(Case(name, (specials((4, 16), t),), {"axes": (1,), "keepdims": 0, "last": 0}))
    check_cases(cases)


@pytest.mark.parametrize("name", SCANS)
def test_scans(name: str) -> None:
    cases = [
        Case(name, (values(name, (N, M, 2), f32),), {"axis": axis, "exclusive": e, "reverse": r}, SIZES)
        for axis in (0, 1, 2)
        for e in (0, 1)
        for r in (0, 1)
    ]
    cases += [Case(name, (values(name, (9,), t),), {"axis": 0, "exclusive": 0, "reverse": 0}) for t in (f16, f64, i32, i64)]
    check_cases(cases)


def test_bool_is_refused_by_arithmetic() -> None:
    b = Builder()
    x = b.param("x", TensorInfo((4,), boolean))
    for name in ARITHMETIC:
        with pytest.raises(CompileError, match="reductions do not take bool"):
            b.emit(name, x, axes=(0,), keepdims=0)
