"""Data types: the table is complete, agrees with numpy in width and range, and a type is one object everywhere."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

from everport.ir.dtype import DTYPES, DType, boolean, dtype, f8e4m3fn, from_numpy, i4, i64, u4, u8

TYPES = list(DTYPES.values())
EACH = pytest.mark.parametrize("t", TYPES, ids=str)


def test_the_table_holds_every_promised_type():
    assert set(DTYPES) == {
        "bool", "i2", "i4", "i8", "i16", "i32", "i64", "u2", "u4", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64",
        "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f8e8m0", "f6e2m3", "f6e3m2", "f4e2m1",
    }  # fmt: skip
    assert all(name == t.name == str(t) == repr(t) for name, t in DTYPES.items())


@EACH
def test_names_and_numpy_types_lead_back(t: DType):
    assert dtype(t.name) is t
    assert dtype(t) is t
    assert from_numpy(t.numpy) is t
    assert from_numpy(t.numpy.type) is t


@EACH
def test_a_copy_is_the_type_itself(t: DType):
    assert pickle.loads(pickle.dumps(t)) is t
    assert copy.copy(t) is t
    assert copy.deepcopy([t])[0] is t


@EACH
def test_widths_agree_with_numpy(t: DType):
    assert t.itemsize == t.numpy.itemsize
    assert t.bits == t.numpy.itemsize * 8 or (t.bits < 8 and t.itemsize == 1)


@EACH
def test_kinds_exclude_one_another(t: DType):
    assert [t.is_bool, t.is_int, t.is_float].count(True) == 1
    assert t.is_signed == (t.min_value < 0)


@pytest.mark.parametrize("t", [t for t in TYPES if t.is_int], ids=str)
def test_integer_ranges(t: DType):
    info = ml_dtypes.iinfo(t.numpy)
    assert (t.min_value, t.max_value) == (int(info.min), int(info.max))


@pytest.mark.parametrize("t", [t for t in TYPES if t.is_float and t.bits <= 16], ids=str)
def test_small_float_ranges_by_looking_at_every_value(t: DType):
    bits = np.arange(1 << t.bits, dtype=np.uint8 if t.bits <= 8 else np.uint16)
    with np.errstate(invalid="ignore"):
        values = bits.view(t.numpy).astype(np.float64)
    finite = values[np.isfinite(values)]
    assert (t.min_value, t.max_value) == (finite.min(), finite.max())


def test_wide_float_and_bool_ranges():
    assert dtype("f32").max_value == float(np.finfo(np.float32).max)
    assert dtype("f64").min_value == -np.finfo(np.float64).max
    assert (boolean.min_value, boolean.max_value) == (0, 1)
    assert (i4.min_value, i4.max_value, u4.min_value, u4.max_value) == (-8, 7, 0, 15)
    assert (u8.max_value, i64.min_value, f8e4m3fn.max_value) == (255, -(2**63), 448.0)


def test_unknown_types_are_refused_by_name():
    with pytest.raises(KeyError, match=r"unknown data type 'float32'; known: bool, i2"):
        dtype("float32")
    for other in (np.complex64, np.dtype("U3"), np.dtype(object), np.dtype("M8[s]")):
        with pytest.raises(KeyError, match="has no Everport data type"):
            from_numpy(other)


def test_byte_order_of_another_machine_is_no_type():
    with pytest.raises(KeyError):
        from_numpy(np.dtype(">f4"))
