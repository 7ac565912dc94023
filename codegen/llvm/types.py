"""LLVM spellings of types and constants.

Values: bool is i1, 4-bit integers are i8, bf16 and fp8 are held as float (each operation is rounded back), f16 is half.
Memory: bool is i8, bf16 is i16, fp8 is i8.
"""

from __future__ import annotations

import struct

import numpy as np

from everport.ir.dtype import DType
from everport.ir.errors import UnsupportedError

_VALUE = {
    "bool": "i1", "i4": "i8", "u4": "i8", "f16": "half", "f32": "float", "f64": "double", "bf16": "float",
    "f8e4m3fn": "float", "f8e4m3fnuz": "float", "f8e5m2": "float", "f8e5m2fnuz": "float",
}  # fmt: skip
_MEMORY = {"bool": "i8", "bf16": "i16", "f8e4m3fn": "i8", "f8e4m3fnuz": "i8", "f8e5m2": "i8", "f8e5m2fnuz": "i8"}


def value_type(t: DType, lanes: int = 1) -> str:
    """The type of an SSA value."""
    scalar = _VALUE.get(t.name) or (f"i{t.bits}" if t.is_int else "")
    if not scalar:
        raise UnsupportedError(f"{t} tensors are not supported on the CPU yet")
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def memory_type(t: DType, lanes: int = 1) -> str:
    """The type of an element in a buffer."""
    scalar = _MEMORY.get(t.name) or value_type(t)
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
