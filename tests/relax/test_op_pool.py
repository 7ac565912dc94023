"""Pooling: windows, pads, ceil mode, positions."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, f16, f32, f64, i8, u8
from everport.relax.op.pool import POOL_OPS
from everport.tir.expr import Var

N, H, W = Var("n"), Var("h"), Var("w")
SIZES = ({N: 2, H: 9, W: 12}, {N: 1, H: 5, W: 6}, {N: 0, H: 7, W: 8})


def test_every_row_is_here() -> None:
    assert set(POOL_OPS) == {"max_pool", "average_pool", "lp_pool"}


def attrs(kernel: tuple, stride=1, dilation=1, before=0, after=None, ceil: int = 0, **more) -> dict:
    def spread(v) -> tuple:
        return v if isinstance(v, tuple) else (v,) * len(kernel)

    after = before if after is None else after
    windows = {"kernel": kernel, "strides": spread(stride), "dilations": spread(dilation)}
    return {**windows, "before": spread(before), "after": spread(after), "ceil_mode": ceil, **more}


WINDOWS = {
    "plain": attrs((2, 3)),
    "halving": attrs((2, 2), 2),
    "padded": attrs((3, 3), 2, before=1),
    "uneven": attrs((3, 2), (2, 1), before=(1, 0), after=(0, 1)),
    "dilated": attrs((2, 3), 1, dilation=(2, 1), before=(1, 1)),
    "ceil": attrs((3, 3), 2, ceil=1),
    "ceil_padded": attrs((3, 3), 2, before=1, ceil=1),
    "ceil_past_the_end": attrs((2, 2), 3, before=1, ceil=1),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_max_pool(name: str) -> None:
    negative = Arg((N, 3, H, W), f32, lambda s, rng: rng.standard_normal(s) - 10)  # a pad of zeros would win
    cases = [Case("max_pool", (negative,), WINDOWS[name], SIZES)]
    ties = Arg((N, 3, H, W), f32, lambda s, rng: rng.integers(0, 3, s))
    for order in ({}, {"column_major": 1}):
        cases.append(Case("max_pool", (ties,), {**WINDOWS[name], "positions": 1, **order}, SIZES))
    check_cases(cases)


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("include", [0, 1])
def test_average_pool(name: str, include: int) -> None:
    check_cases([Case("average_pool", (Arg((N, 3, H, W)),), {**WINDOWS[name], "count_include_pad": include}, SIZES)])


@pytest.mark.parametrize("name", WINDOWS)
def test_lp_pool(name: str) -> None:
    check_cases([Case("lp_pool", (Arg((N, 3, H, W)),), {**WINDOWS[name], "p": p}, SIZES) for p in (1, 2, 3)])


@pytest.mark.parametrize("t", [f16, f64, i8, u8], ids=str)
def test_types(t: DType) -> None:
    cases = [Case("max_pool", (Arg((2, 3, 6, 7), t),), WINDOWS["padded"])]
    if t.is_float:
        cases.append(Case("average_pool", (Arg((2, 3, 6, 7), t),), {**WINDOWS["padded"], "count_include_pad": 0}))
    check_cases(cases)


def test_one_and_three_axes() -> None:
    check_cases(
        [
            Case("max_pool", (Arg((N, 3, W)),), attrs((3,), 2, before=1), SIZES),
            Case("average_pool", (Arg((N, 3, W)),), attrs((2,), 2, ceil=1, count_include_pad=0), SIZES),
            Case("max_pool", (Arg((1, 2, 4, H, W)),), attrs((2, 2, 2), 2, positions=1), SIZES[:2]),
        ]
    )


def test_averages_of_padded_ones() -> None:
    """Pads count or not: by hand."""
    ones = np.ones((1, 1, 3, 3), np.float32)
    how = {**attrs((2, 2), 2, before=1), "out_shape": (1, 1, 2, 2)}
    pool = POOL_OPS["average_pool"].numpy
    assert pool({**how, "count_include_pad": 0}, ones).ravel().tolist() == [1, 1, 1, 1]
    assert pool({**how, "count_include_pad": 1}, ones).ravel().tolist() == [0.25, 0.5, 0.5, 1]
