"""Binary operators, where and cast: every row on every type, with broadcasting."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases, specials

from everport.ir.dtype import DType, bf16, boolean, f8e4m3fn, f8e5m2, f16, f32, f64, i4, i8, i16, i32, i64, u4, u8, u64
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.base import FusionKind
from everport.relax.op.binary import BINARY_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, M = Var("n"), Var("m")
SIZES = ({N: 7, M: 5}, {N: 1, M: 3}, {N: 0, M: 2})
FLOATS = (bf16, f32, f64)
INTS = (i8, i64, u8, u64)
CAST_TO = (f8e4m3fn, f16, f32, f64, i4, i8, i32, u4, u64, boolean)
TAKES: dict[str, tuple[DType, ...]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "maximum", "minimum", "mod", "fmod"), (*FLOATS, *INTS)),
    **dict.fromkeys(("equal", "not_equal"), (*FLOATS, *INTS, boolean)),
    **dict.fromkeys(("less", "less_equal", "greater", "greater_equal"), (*FLOATS, *INTS)),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (boolean,)),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"), INTS),
    "divide": (*FLOATS, *INTS),
    "power": FLOATS,
}


def test_every_row_is_here() -> None:
    assert set(TAKES) | {"where", "cast", "bitcast"} == set(BINARY_OPS)
    assert all(BINARY_OPS[n].kind == FusionKind.BROADCAST for n in TAKES)


def second(name: str, shape: tuple, t: DType) -> Arg:
    """Divisors without zero (integers), shifts within and past the width; else any value."""
    if name.startswith("shift"):
        return Arg(shape, t, lambda s, rng: rng.integers(0, t.bits + 2, s))
    if t.is_int and name in ("divide", "mod", "fmod"):
        low = -9 if t.is_signed else 1
        return Arg(shape, t, lambda s, rng: np.where((v := rng.integers(low, 10, s)) == 0, 3, v))
    if name in ("mod", "fmod"):
        return Arg(shape, t, lambda s, rng: rng.standard_normal(s) * 3)
    return specials(shape, t)


def first(name: str, shape: tuple, t: DType) -> Arg:
    if name in ("mod", "fmod") and t.is_float:  # the remainder of what rounding can't disturb
        return Arg(shape, t, lambda s, rng: rng.standard_normal(s) * 20)
    return specials(shape, t)


@pytest.mark.parametrize("name", TAKES)
def test_row(name: str) -> None:
    cases = [Case(name, (first(name, (N, M), t), second(name, (N, M), t)), sizes=({N: 7, M: 5},)) for t in TAKES[name]]
    t = TAKES[name][0]
    shapes = [((N, M), (M,)), ((N, 1, M), (1, 4, 1)), ((), (N,)), ((N, M), (1, 1)), ((1, M), (N, 1))]
    broadcasting = [Case(name, (first(name, a, t), second(name, b, t)), sizes=SIZES) for a, b in shapes]
    check_cases([*cases, *broadcasting, Case(name, (first(name, (), t), second(name, (), t)))])


def test_integer_division_truncates_and_the_remainders_follow() -> None:
    top = Arg((8,), i32, lambda s, _: np.array([7, -7, 7, -7, 6, -6, 0, -1]))
    bottom = Arg((8,), i32, lambda s, _: np.array([2, 2, -2, -2, 3, 3, 5, 5]))
    rows = {"divide": [3, -3, -3, 3, 2, -2, 0, 0], "mod": [1, 1, -1, -1, 0, 0, 0, 4], "fmod": [1, -1, 1, -1, 0, 0, 0, -1]}
    for name, expected in rows.items():
        x, y = top.array({}, None), bottom.array({}, None)
        assert BINARY_OPS[name].numpy({}, x, y).tolist() == expected
        check_cases([Case(name, (top, bottom))])


@pytest.mark.parametrize("t", [i32, i64, u8], ids=str)
def test_integer_power(t: DType) -> None:
    base = Arg((N,), t, lambda s, rng: rng.integers(0 if t.kind == "uint" else -5, 6, s))
    exponent = Arg((N,), t, lambda s, rng: rng.integers(0, 4, s))
    check_cases([Case("power", (base, exponent), sizes=({N: 30},))])


def test_nan_passes_through_the_extremes() -> None:
    check_cases([Case(name, (specials((64,), t), specials((64,), t))) for name in ("maximum", "minimum") for t in FLOATS])
    nan = np.array([np.nan, 1, np.nan], np.float32)
    assert np.isnan(BINARY_OPS["maximum"].numpy({}, nan, np.ones(3, np.float32))).tolist() == [True, False, True]


@pytest.mark.parametrize("t", [f16, f32, f64, i8, i64, u8, boolean], ids=str)
def test_where(t: DType) -> None:
    shapes = [((N, M), (N, M), (N, M)), ((N, 1), (M,), ()), ((), (N, M), (1, M)), ((M,), (N, 1), (2, N, M))]
    check_cases([Case("where", (Arg(c, boolean), specials(a, t), specials(b, t)), sizes=SIZES) for c, a, b in shapes])


@pytest.mark.parametrize("source", [f8e4m3fn, f8e5m2, f16, bf16, f32, f64, i4, i16, i64, u4, u64, boolean], ids=str)
def test_cast(source: DType) -> None:
    check_cases([Case("cast", (specials((N,), source),), {"to": t.name}, ({N: 40},), tolerance=(0, 0)) for t in CAST_TO])


def test_unequal_types_and_shapes_are_refused() -> None:
    for name, t in itertools.product(TAKES, (f32, i8, boolean)):
        b = Builder()
        x, y = b.param("x", TensorInfo((4, 3), t)), b.param("y", TensorInfo((4, 3), i64))
        z = b.param("z", TensorInfo((4,), t))
        with pytest.raises(CompileError, match=f"{name}: the arguments differ in type"):
            b.emit(name, x, y)
        if t in TAKES[name]:
            with pytest.raises(CompileError, match=f"the shapes of {name} do not broadcast: 3 and 4 differ"):
                b.emit(name, x, z)
        elif not (name == "power" and t == i8):
            with pytest.raises(CompileError, match=f"{name} does not take {t} tensors"):
                b.emit(name, x, x)


def test_unknown_extents_become_constraints() -> None:
    b = Builder()
    x, y = b.param("x", TensorInfo((N, 4), f32)), b.param("y", TensorInfo((M, 4), f32))
    assert b.emit("add", x, y).info.shape == x.info.shape
    assert [(p, q) for p, q, _ in b.ctx.constraints] == [(N, M)]
