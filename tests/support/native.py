"""Runs PrimFuncs natively and in the interpreter on equal arguments, and compares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from everport.codegen.llvm.jit import compile_and_load
from everport.ir.dtype import DType
from everport.ir.node import Node, rewrite
from everport.tir import interp
from everport.tir.expr import Const, Var, as_int, substitute
from everport.tir.func import PrimFunc
from everport.tir.lower import lower
from everport.tir.stmt import For


def allocated(func: PrimFunc, ints: Sequence[int]) -> list[np.ndarray]:
    """Outputs and workspaces of `func` for the values of its scalars, filled with a pattern."""
    values = dict(zip(func.scalars, ints, strict=True))
    made = []
    for b in func.buffers[len(func.inputs) :]:
        raw = np.full(int(np.prod([interp.evaluate(s, values) for s in b.shape])) * b.dtype.itemsize, 0x55, np.uint8)
        made.append((raw & 1 if b.dtype.is_bool else raw).view(b.dtype.numpy))
    return made


def native(func: PrimFunc, inputs: Sequence[np.ndarray], ints: Sequence[int] = (), **options: Any) -> list[np.ndarray]:
    """The outputs (flat) of a scheduled function, lowered and compiled for this machine."""
    device = lower(func)
    made = allocated(device, ints)
    compile_and_load(device, **options)(*[np.ascontiguousarray(i) for i in inputs], *made, *ints)
    return made[: device.num_outputs]


def interpreted(func: PrimFunc, inputs: Sequence[np.ndarray], ints: Sequence[int] = ()) -> list[np.ndarray]:
    """The outputs (flat) by the reference interpreter."""
    return [np.ravel(o) for o in interp.call(func, list(inputs), list(ints))]


def values_of(t: DType, count: int, seed: int = 0) -> np.ndarray:
    """Test values of a type: special ones first, then random ones over the whole range."""
    rng = np.random.default_rng(seed)
    if t.is_bool:
        return rng.integers(0, 2, count).astype(np.bool_)
    if t.is_int:
        low, high = int(t.min_value), int(t.max_value)
        special = np.array([v for v in (0, 1, -1, 2, -2, 3, 7, low, high, low + 1, high - 1, 10, -7) if low <= v <= high], object)
        drawn = rng.integers(low, high, count, dtype=t.numpy if t.bits >= 8 else np.int64, endpoint=True).astype(object)
        mixed = np.where(rng.integers(0, 3, count) == 0, drawn % 17 if low == 0 else drawn % 17 - 8, drawn)
        mixed = np.clip(mixed, low, high)
        mixed[: len(special)] = special[:count]
        return mixed.astype(t.numpy)
    special = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 0.5, 1.5, 2.5, -2.5, 1e-3, float(t.max_value), float(t.min_value)])
    drawn = rng.standard_normal(count) * 2.0 ** rng.integers(-6, 7, count)
    drawn[: len(special)] = special[:count]
    with np.errstate(all="ignore"):
        return drawn.astype(t.numpy)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, but that any NaN equals any NaN."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind == "f" or a.dtype.kind == "V":
        x, y = a.astype(np.float64), b.astype(np.float64)
        return bool(np.all((np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y)))))
    return bool(np.array_equal(a, b))


def wide(func: PrimFunc, count: int, lanes: int = 16) -> PrimFunc:
    """The function with its innermost loops of `count` steps in vectors."""

    def split(n: Node) -> Node | None:
        if isinstance(n, For) and not isinstance(n.body, For) and as_int(n.extent) == count:
            outer, inner = Var("outer"), Var("inner")
            body = substitute(n.body, {n.var: outer * lanes + inner})
            return For(outer, Const(count // lanes), For(inner, Const(lanes), body, "vectorized"))
        return None

    return func.with_fields(body=rewrite(func.body, split))
