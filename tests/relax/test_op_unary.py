"""Unary operators: every row on every type it takes."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases, specials

from everport.ir.dtype import DTYPES, bf16, boolean, f16, f32, f64, i8, i32, i64, u8
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.unary import UNARY_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N = Var("n")
FLOATS = [f16, bf16, f32, f64]
INTS = ["neg", "abs", "sign", "relu", "bitwise_not"]
ONLY_INTS = ["bitwise_not"]
BOOLS = ["logical_not"]


def takes(name: str) -> list:
    if name in BOOLS:
        return [boolean]
    return ([] if name in ONLY_INTS else FLOATS) + ([i8, u8, i32, i64] if name in INTS else [])


@pytest.mark.parametrize("name", UNARY_OPS)
def test_row(name: str) -> None:
    cases = [Case(name, (specials((N, 3), t),), sizes=({N: 21}, {N: 0})) for t in takes(name)]
    check_cases([*cases, Case(name, (specials((), takes(name)[0]),))])


@pytest.mark.parametrize("name", UNARY_OPS)
def test_other_types_are_refused(name: str) -> None:
    for t in DTYPES.values():
        kind_fits = {"float": takes(name)[0].is_float, "bool": name in BOOLS}.get(t.kind, name in INTS)
        b = Builder()
        x = b.param("x", TensorInfo((4,), t))
        if kind_fits:
            assert b.emit(name, x).info.shape == x.info.shape
        else:
            with pytest.raises(CompileError, match=f"{name} does not take {t}"):
                b.emit(name, x)


def test_steep_functions_stay_finite_where_the_result_is() -> None:
    far = Arg((8,), f32, lambda s, _: np.array([-1e4, -100, -89, -20, 20, 89, 100, 1e4]))
    check_cases([Case(name, (far,)) for name in ("softplus", "sigmoid", "tanh", "erf")])
