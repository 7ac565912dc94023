"""Reading and writing the safetensors format: a JSON header, then tensors end to end."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterable, Iterator
from typing import Any

from .errors import RunError

ALIGN = 64
TYPES = {
    "bool": "BOOL", "i2": "I8", "u2": "U8", "i4": "I8", "u4": "U8", "i8": "I8", "u8": "U8", "i16": "I16", "u16": "U16", "i32": "I32", "u32": "U32",
    "i64": "I64", "u64": "U64", "f16": "F16", "bf16": "BF16", "f32": "F32", "f64": "F64", "f8e4m3fn": "F8_E4M3",
    "f8e5m2": "F8_E5M2", "f8e4m3fnuz": "U8", "f8e5m2fnuz": "U8", "f8e8m0": "U8", "f6e2m3": "U8", "f6e3m2": "U8", "f4e2m1": "U8",
}  # fmt: skip
SIZES = {"BOOL": 1, "I8": 1, "U8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8}
MAX_HEADER = 100_000_000
PADDING = "everport.padding."


def layout(tensors: Iterable[tuple[str, str, tuple[int, ...], int]]) -> tuple[bytes, int]:
    """Header bytes (a multiple of 64 with the length word) and size of the data section for (name, dtype, shape, bytes).

    Every tensor starts at a multiple of 64; the gaps are tensors of their own, since the format allows no holes.
    """
    header: dict[str, Any] = {}
    position = 0
    for number, (name, dtype, shape, size) in enumerate(tensors):
        if name in header or name.startswith(PADDING):
            raise ValueError(f"tensor name {name!r} is taken")
        header[name] = {"dtype": TYPES[dtype], "shape": list(shape), "data_offsets": [position, position + size]}
        position += size
        gap = -position % ALIGN
        if gap:
            header[f"{PADDING}{number}"] = {"dtype": "U8", "shape": [gap], "data_offsets": [position, position + gap]}
            position += gap
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGN)
    return struct.pack("<Q", len(text)) + text, position


def chunks(header: bytes, arrays: Iterable[Any]) -> Iterator[bytes]:
    """The bytes of a file with that header; arrays (C-contiguous) in the same order."""
    yield header
    for array in arrays:
        data = memoryview(array.reshape(-1).view("u1")) if array.size else memoryview(b"")
        for start in range(0, len(data), 1 << 24):
            yield bytes(data[start : start + (1 << 24)])
        gap = -len(data) % ALIGN
        if gap:
            yield b"\0" * gap


def read(view: memoryview, what: str) -> tuple[dict[str, tuple[str, tuple[int, ...], int, int]], int]:
    """(type, shape, begin, end) by name, relative to the data section, and where that section starts.

    Refuses what does not fit: sizes that disagree with shapes, overlaps, holes, offsets outside.
    """

    def bad(why: str) -> RunError:
        return RunError(f"{what} is malformed: {why}")

    if len(view) < 8:
        raise bad("it is too short")
    length = struct.unpack_from("<Q", view)[0]
    if length > min(MAX_HEADER, len(view) - 8):
        raise bad(f"its header claims {length} bytes")
    try:
        header = json.loads(bytes(view[8 : 8 + length]))
    except (ValueError, RecursionError):
        raise bad("its header is not JSON") from None
    if not isinstance(header, dict):
        raise bad("its header is not an object")
    start, found, spans = 8 + length, {}, []
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        try:
            kind, shape, (begin, end) = entry["dtype"], tuple(entry["shape"]), entry["data_offsets"]
        except (TypeError, KeyError, ValueError):
            raise bad(f"tensor {name!r} lacks dtype, shape or data_offsets") from None
        numbers = (*shape, begin, end)
        if not isinstance(kind, str) or kind not in SIZES or not all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in numbers):
            raise bad(f"tensor {name!r} has an unknown type or a size that is no number")
        if begin > end or end > len(view) - start or end - begin != math.prod(shape) * SIZES[kind]:
            raise bad(f"tensor {name!r} of shape {list(shape)} cannot be bytes {begin} to {end}")
        spans.append((begin, end, name))
        found[name] = (kind, shape, begin, end)
    position = 0
    for begin, end, name in sorted(spans):
        if begin != position:
            raise bad(f"tensor {name!r} overlaps another or leaves a gap")
        position = end
    if position != len(view) - start:
        raise bad(f"{len(view) - start - position} bytes belong to no tensor")
    return found, start
