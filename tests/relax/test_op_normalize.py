"""Softmax and normalisations."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, bf16, f16, f32, f64
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.normalize import NORMALIZE_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, M = Var("n"), Var("m")
SIZES = ({N: 4, M: 19}, {N: 1, M: 1}, {N: 0, M: 5})


def test_every_row_is_here() -> None:
    assert set(NORMALIZE_OPS) == {"softmax", "log_softmax", "layer_norm", "rms_norm"}


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name: str) -> None:
    cases = [Case(name, (Arg((N, M), t),), {"axis": 1}, SIZES) for t in (f16, bf16, f32, f64)]
    cases += [Case(name, (Arg((2, N, M)),), {"axis": axis}, SIZES) for axis in (0, 1, 2)]
    check_cases(cases)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_of_extreme_rows(name: str) -> None:
    rows = [[1000, 1001, 999], [-1e30, 0, 1], [-np.inf, 0, 0], [np.inf, 0, 1], [np.nan, 0, 1], [3e38, 3e38, -3e38]]
    check_cases([Case(name, (Arg((6, 3), f32, lambda s, _: np.array(rows)),), {"axis": 1})])


@pytest.mark.parametrize("t", [f16, bf16, f32, f64], ids=str)
def test_layer_norm(t: DType) -> None:
    cases = []
    for stats in (0, 1):
        for axis, scale in ((2, (M,)), (1, (N, M)), (1, (M,)), (0, (2, N, M))):
            for count in (1, 2):
                args = (Arg((2, N, M), t), *[Arg(scale, t)] * count)
                attrs = {"axis": axis, "epsilon": 1e-3, "stats": stats}
                cases.append(Case("layer_norm", args, attrs, ({N: 4, M: 19}, {N: 1, M: 1})))
        if t != f32:
            cases = cases[:2]
    check_cases(cases)


@pytest.mark.parametrize("t", [f16, bf16, f32, f64], ids=str)
def test_rms_norm(t: DType) -> None:
    cases = [
        Case("rms_norm", (Arg((2, N, M), t), Arg(scale, t)), {"axis": axis, "epsilon": 1e-3}, ({N: 4, M: 19}, {N: 1, M: 1}))
        for axis, scale in ((2, (M,)), (1, (N, M)), (0, (1, M)))
    ]
    check_cases(cases)


def test_norms_are_exact_far_from_zero() -> None:
    """The deviation is taken from the mean, not from the difference of two large numbers."""
    far = Arg((3, 64), f32, lambda s, rng: 10_000 + rng.standard_normal(s))
    one = Arg((64,), f32, lambda s, _: np.ones(s))
    check_cases([Case("layer_norm", (far, one), {"axis": 1, "epsilon": 1e-5, "stats": 0}, tolerance=(2e-3, 2e-3))])


@pytest.mark.parametrize("name, more", [("layer_norm", {"stats": 0}), ("rms_norm", {})])
def test_a_scale_that_does_not_fit_is_refused(name: str, more: dict) -> None:
    b = Builder()
    x, scale = b.param("x", TensorInfo((2, 3), f32)), b.param("scale", TensorInfo((4,), f32))
    with pytest.raises(CompileError, match=f"the scale of {name} does not fit: 3 and 4 differ"):
        b.emit(name, x, scale, axis=1, epsilon=1e-5, **more)
