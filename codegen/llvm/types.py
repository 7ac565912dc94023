"""LLVM spellings of types and constants.

Values: bool is i1, 2- and 4-bit integers are i8, bf16 and floats of 8 bits or less are held as float (each operation is rounded
back), f16 is half. Memory: bool is i8, bf16 is i16, floats of 8 bits or less are i8.
"""

from __future__ import annotations

import struct

import numpy as np

from everport.ir.dtype import DType

_VALUE = {"bool": "i1", "f16": "half", "f64": "double"}
_MEMORY = {"bool": "i8", "bf16": "i16"}


def value_type(t: DType, lanes: int = 1) -> str:
    """The type of an SSA value."""
    scalar = _VALUE.get(t.name) or (f"i{max(8, t.bits)}" if t.is_int else "float")
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def memory_type(t: DType, lanes: int = 1) -> str:
    """The type of an element in a buffer."""
    scalar = _MEMORY.get(t.name) or ("i8" if t.is_float and t.bits <= 8 else value_type(t))
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def literal(value: float, t: DType) -> str:
    """A scalar constant of a value type."""
    if t.is_bool:
        return "true" if value else "false"
    if t.is_int:
        return str(int(value))
    if t.name == "f64":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if t.name == "f16":
        bits = struct.unpack("<H", _half(value))[0]
        return f"0xH{bits:04X}"
    if t.bits < 32:
        value = float(np.asarray(value).astype(t.numpy))
    rounded = struct.unpack("<f", _single(value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


def _half(value: float) -> bytes:
    try:
        return struct.pack("<e", value)
    except OverflowError:
        return struct.pack("<e", float("inf") if value > 0 else float("-inf"))


def _single(value: float) -> bytes:
    try:
        return struct.pack("<f", value)
    except OverflowError:
        return struct.pack("<f", float("inf") if value > 0 else float("-inf"))


def splat(scalar_type: str, text: str, lanes: int) -> str:
    """A vector constant with one value in every lane."""
    return f"splat ({scalar_type} {text})" if lanes > 1 else text
