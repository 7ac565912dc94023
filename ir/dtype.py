"""Scalar data types: the one list of names, widths and numpy twins that every level uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import ml_dtypes
import numpy as np

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True, slots=True)
class DType:
    """A scalar type; `name` is its printed form (f32, i64, u8, bf16, f8e4m3fn, f4e2m1, bool).

    `bits` is the width that the type needs; in memory types of less than 8 bits take one byte each.
    """

    name: str
    kind: Kind
    bits: int

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[Callable[[str], DType], tuple[str]]:
        # One object a type, in copies and in other processes too: `is` tells types apart.
        return dtype, (self.name,)

    @property
    def itemsize(self) -> int:
        """Bytes of one element in a buffer (types of less than 8 bits are stored one a byte)."""
        return max(1, self.bits // 8)

    @property
    def is_float(self) -> bool:
        return self.kind == "float"

    @property
    def is_int(self) -> bool:
        """True for signed and unsigned integers, not for bool."""
        return self.kind in ("int", "uint")

    @property
    def is_signed(self) -> bool:
        return self.kind == "int" or (self.kind == "float" and self.name != "f8e8m0")

    @property
    def is_bool(self) -> bool:
        return self.kind == "bool"

    @property
    def numpy(self) -> np.dtype:
        return _NUMPY[self.name]

    @property
    def min_value(self) -> int | float:
        """Smallest finite value."""
        if self.kind == "float":
            return float(ml_dtypes.finfo(self.numpy).min)
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def max_value(self) -> int | float:
        """Largest finite value."""
        if self.kind == "float":
            return float(ml_dtypes.finfo(self.numpy).max)
        if self.kind == "bool":
            return 1
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1


boolean = DType("bool", "bool", 8)
i2, i4, i8, i16, i32, i64 = (DType(f"i{b}", "int", b) for b in (2, 4, 8, 16, 32, 64))
u2, u4, u8, u16, u32, u64 = (DType(f"u{b}", "uint", b) for b in (2, 4, 8, 16, 32, 64))
f16, f32, f64 = (DType(f"f{b}", "float", b) for b in (16, 32, 64))
bf16 = DType("bf16", "float", 16)
f8e4m3fn = DType("f8e4m3fn", "float", 8)
f8e4m3fnuz = DType("f8e4m3fnuz", "float", 8)
f8e5m2 = DType("f8e5m2", "float", 8)
f8e5m2fnuz = DType("f8e5m2fnuz", "float", 8)
f8e8m0 = DType("f8e8m0", "float", 8)  # powers of two, no sign, no zero
f6e2m3 = DType("f6e2m3", "float", 6)  # these three have neither infinity nor NaN
f6e3m2 = DType("f6e3m2", "float", 6)
f4e2m1 = DType("f4e2m1", "float", 4)

_NUMPY: dict[str, np.dtype] = {
    "bool": np.dtype(np.bool_),
    "i2": np.dtype(ml_dtypes.int2),
    "i4": np.dtype(ml_dtypes.int4),
    "i8": np.dtype(np.int8),
    "i16": np.dtype(np.int16),
    "i32": np.dtype(np.int32),
    "i64": np.dtype(np.int64),
    "u2": np.dtype(ml_dtypes.uint2),
    "u4": np.dtype(ml_dtypes.uint4),
    "u8": np.dtype(np.uint8),
    "u16": np.dtype(np.uint16),
    "u32": np.dtype(np.uint32),
    "u64": np.dtype(np.uint64),
    "f16": np.dtype(np.float16),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "f8e4m3fnuz": np.dtype(ml_dtypes.float8_e4m3fnuz),
    "f8e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "f8e5m2fnuz": np.dtype(ml_dtypes.float8_e5m2fnuz),
    "f8e8m0": np.dtype(ml_dtypes.float8_e8m0fnu),
    "f6e2m3": np.dtype(ml_dtypes.float6_e2m3fn),
    "f6e3m2": np.dtype(ml_dtypes.float6_e3m2fn),
    "f4e2m1": np.dtype(ml_dtypes.float4_e2m1fn),
}

DTYPES: dict[str, DType] = {
    t.name: t
    for t in (boolean, i2, i4, i8, i16, i32, i64, u2, u4, u8, u16, u32, u64, f16, bf16, f32, f64, f8e4m3fn, f8e4m3fnuz, f8e5m2,
              f8e5m2fnuz, f8e8m0, f6e2m3, f6e3m2, f4e2m1)
}  # fmt: skip
_FROM_NUMPY: dict[np.dtype, DType] = {_NUMPY[name]: t for name, t in DTYPES.items()}


def dtype(name: str | DType) -> DType:
    """The type called `name`; raises KeyError with the known names."""
    if isinstance(name, DType):
        return name
    if name not in DTYPES:
        raise KeyError(f"unknown data type {name!r}; known: {', '.join(DTYPES)}")
    return DTYPES[name]


def from_numpy(t: np.dtype | type) -> DType:
    """The type of a numpy dtype; raises KeyError if Everport has no such type (strings, complex, objects)."""
    key = np.dtype(t)
    if key not in _FROM_NUMPY:
        raise KeyError(f"numpy dtype {key} has no Everport data type")
    return _FROM_NUMPY[key]
