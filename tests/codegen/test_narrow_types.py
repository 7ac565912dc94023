"""Types of 16 bits and less by brute force: every code as a value, and every rounding boundary, against ml_dtypes."""

from __future__ import annotations

import numpy as np
import pytest
from support.native import native, same

from everport.ir.dtype import DTYPES, DType, f32, f64, i32
from everport.relax.op.binary import cast_array
from everport.tir.build import FuncBuilder
from everport.tir.expr import cast

NARROW = [t for t in DTYPES.values() if t.bits <= 16 and not t.is_bool]
FLOATS = [t for t in NARROW if t.is_float]


def every_code(t: DType) -> np.ndarray:
    return np.arange(1 << t.bits, dtype=np.uint8 if t.bits <= 8 else np.uint16).view(t.numpy)


def casts(x: np.ndarray, source: DType, *targets: DType) -> list[np.ndarray]:
    b = FuncBuilder("casts")
    given = b.input("x", x.shape, source)
    for t in targets:
        b.output(b.compute(f"to_{t}", x.shape, t, lambda i, t=t: cast(given[i], t)))
    return native(b.finish(), [x])


def boundaries(t: DType) -> np.ndarray:
    """f32 values around every value of `t` and every midpoint between neighbours, zeros, infinities, NaN, and extremes."""
    values = every_code(t).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    middles = (values[1:] + values[:-1]) / 2
    step = float(values[-1] - values[-2])
    beyond = [values[-1] + step * k / 2 for k in (0.5, 1, 1.5, 2, 4)]
    with np.errstate(all="ignore"):
        near = np.concatenate([values, middles, beyond, np.negative(beyond)]).astype(np.float32)
        around = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    extremes = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -np.nan, 1e-45, -1e-45, 3e38, -3e38], np.float32)
    return np.concatenate([*around, extremes])


@pytest.mark.parametrize("t", NARROW, ids=str)
def test_every_code_as_a_value_and_back(t: DType) -> None:
    codes = every_code(t)
    wide = f32 if t.is_float else i32
    value, again = casts(codes, t, wide, t)
    assert same(value, codes.astype(wide.numpy))
    assert same(again, codes)
    assert same(casts(value, wide, t)[0], codes)


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_every_rounding_boundary(t: DType) -> None:
    singles = boundaries(t)
    with np.errstate(all="ignore"):
        assert same(casts(singles, f32, t)[0], singles.astype(t.numpy))
        halves = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32)
        assert same(casts(halves, f32, t)[0], halves.astype(t.numpy))


@pytest.mark.parametrize("t", FLOATS, ids=str)
def test_a_double_is_rounded_once(t: DType) -> None:
    """A double beside a boundary, closer to it than a float can be, falls to its own side."""
    values = every_code(t).astype(np.float64)
    values = np.unique(values[np.isfinite(values)])
    if values.size > 2000:
        values = values[:: values.size // 1000]
    middles = (values[1:] + values[:-1]) / 2
    doubles = np.concatenate([np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)])
    got = casts(doubles, f64, t)[0].astype(np.float64)
    finite = np.unique(every_code(t).astype(np.float64))
    finite = finite[np.isfinite(finite)]
    at = np.clip(np.searchsorted(finite, doubles), 1, finite.size - 1)
    low, high = finite[at - 1], finite[at]
    assert np.array_equal(got, np.where(doubles - low < high - doubles, low, high))


@pytest.mark.parametrize("t", [t for t in NARROW if t.bits < 8], ids=str)
def test_high_bits_of_a_byte_are_ignored(t: DType) -> None:
    raw = np.arange(256, dtype=np.uint8)
    wide = f32 if t.is_float else i32
    assert same(casts(raw.view(t.numpy), t, wide)[0], (raw & (1 << t.bits) - 1).view(t.numpy).astype(wide.numpy))


@pytest.mark.parametrize("t", [t for t in NARROW if t.is_int], ids=str)
def test_integers_wrap_and_floats_saturate(t: DType) -> None:
    numbers = np.arange(-70000, 70000, 7 if t.bits > 8 else 1, np.int32)
    wrapped = casts(numbers, i32, t)[0].astype(np.int64)
    low, count = int(t.min_value), 1 << t.bits
    assert np.array_equal(wrapped, (numbers.astype(np.int64) - low) % count + low)
    singles = np.concatenate([np.arange(-70, 70, 0.25), [np.inf, -np.inf, np.nan, 1e30, -1e30]]).astype(np.float32)
    expected = np.clip(np.nan_to_num(np.trunc(singles.astype(np.float64)), posinf=1e30), t.min_value, t.max_value)
    assert np.array_equal(casts(singles, f32, t)[0].astype(np.float64), expected)


@pytest.mark.parametrize("source", NARROW, ids=str)
def test_between_narrow_types(source: DType) -> None:
    """Every code of one type as each other narrow type: native code and numpy meaning agree."""
    codes = every_code(source)
    for t, got in zip(NARROW, casts(codes, source, *NARROW), strict=True):
        with np.errstate(all="ignore"):
            assert same(got, cast_array(codes, t.numpy)), t
