"""Accuracy of every intrinsic against numpy in a wider type, special values included."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.native import native, wide

from everport.ir.dtype import DType, boolean, f16, f32, f64
from everport.tir.build import FuncBuilder
from everport.tir.intrin import INTRINS, call

COUNT = 4096
# Units in the last place; everything else that is not listed is within 2 of the C library or exact.
BOUNDS = {"exp": 1.5, "log": 1.5, "tanh": 3, "erf": 3, "sigmoid": 3, "pow": 2, "rsqrt": 2}
EXACT = ("sqrt", "floor", "ceil", "trunc", "round", "round_away", "abs", "copysign", "fmod")
FLOATS = [row.name for row in INTRINS.values() if not row.effect and row.name != "popcount"]


def inputs(t: DType, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    special = [
        0.0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 0.5, -0.5, 1.5, 2.5, -2.5, 1e-40, -1e-40, 3e38, -3e38, 88.7, 88.8, -87.3,
        -103.9, -104.1, 2.0**-149, 0.625, 0.62499, 1.0001, 4.0, 3.999, -9.0, 9.5, 20.0, -20.0,
    ]  # fmt: skip
    values = rng.standard_normal(COUNT) * 2.0 ** rng.integers(-20, 8, COUNT)
    bits = rng.integers(0, 2**32, COUNT, np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        values = np.where(rng.integers(0, 2, COUNT) == 0, values, bits.astype(np.float64))
        values[: len(special)] = special
        return np.roll(values, seed).astype(t.numpy)


def ulps(got: np.ndarray, exact: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        near = exact.astype(got.dtype)
        step = np.spacing(np.abs(near)).astype(np.longdouble)
        step[~np.isfinite(step)] = 1
        error = np.abs(got.astype(np.longdouble) - exact) / step
        equal = (np.isnan(got) & np.isnan(near)) | (got == near)
        return np.where(equal, 0, np.where(np.isnan(error), np.inf, error))


@pytest.mark.parametrize("t", [f16, f32, f64], ids=str)
@pytest.mark.parametrize("name", FLOATS)
def test_accuracy(name: str, t: DType) -> None:
    row = INTRINS[name]
    b = FuncBuilder("math")
    xs = [b.input(f"x{k}", (COUNT,), t) for k in range(row.arity)]
    b.output(b.compute("y", (COUNT,), boolean if row.result == "bool" else t, lambda i: call(name, *(x[i] for x in xs))))
    func = b.finish()
    data = [inputs(t, 7 * k) for k in range(row.arity)]
    raised = [d.astype(np.longdouble if t is f64 else np.float64) for d in data]
    with np.errstate(all="ignore"):
        if name == "erf":
            exact = np.array([math.erf(float(v)) for v in data[0]])
        elif name == "round_away":
            exact = np.copysign(np.floor(np.abs(raised[0]) + 0.5), raised[0])
        else:
            exact = row.numpy(*raised)
    for variant in (func, wide(func, COUNT)):
        got = native(variant, data)[0]
        if row.result == "bool":
            assert np.array_equal(got, exact)
            continue
        error = ulps(got, exact)
        if name == "sigmoid":  # results below the smallest normal number may be 0
            error[np.abs(exact) < float(np.finfo(t.numpy).tiny)] = 0
        worst = int(np.argmax(error))
        bound = 0.5 if name in EXACT else BOUNDS.get(name, 2)
        assert error[worst] <= bound, (name, [d[worst] for d in data], got[worst], exact[worst])
        zeros = (got == 0) & (exact == 0)
        assert np.array_equal(np.signbit(got[zeros]), np.signbit(exact[zeros])) or name in ("fma", "atan2")


def test_every_intrinsic_is_spelled() -> None:
    from everport.codegen.llvm.math import SPELLED

    assert {row.name for row in INTRINS.values() if not row.effect} <= set(SPELLED)
