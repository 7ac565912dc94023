"""Tensor intrinsics: what a hardware instruction computes (description) and how it is written (implementation).

Both are PrimFuncs with the same parameters. The description is one block nest; `tensorize` matches it against a nest and puts
the implementation's body in its place.
"""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.dtype import f32
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Var
from everport.tir.func import PrimFunc
from everport.tir.intrin import call
from everport.tir.stmt import For, Store


@dataclass(frozen=True, slots=True)
class TensorIntrin:
    """A name, a description and an implementation."""

    name: str
    description: PrimFunc
    implementation: PrimFunc


def _fma_rows(lanes: int) -> TensorIntrin:
    """c[j] += a[0] * b[j] over one vector: a fused multiply-add of a broadcast scalar."""
    d = FuncBuilder("description")
    a, b = d.input("a", (1,), f32), d.input("b", (lanes,), f32)
    c = d.buffer("c", (lanes,), f32)
    j = Var("j")
    d.block("fma", [("v", lanes, "spatial")], [c], lambda v: Store(c, (v,), c[v] + a[0] * b[v]), reads=[a, b])
    d.output(c)
    m = FuncBuilder("implementation")
    x, y = m.input("a", (1,), f32), m.input("b", (lanes,), f32)
    z = m.buffer("c", (lanes,), f32)
    body = For(j, Const(lanes), Store(z, (j,), call("fma", x[0], y[j], z[j])), "vectorized")
    m.block("fma", [], [z], lambda: body, reads=[x, y])
    m.output(z)
    return TensorIntrin(f"fma_f32x{lanes}", d.finish(), m.finish())


TENSOR_INTRINS: dict[str, TensorIntrin] = {i.name: i for i in (_fma_rows(4), _fma_rows(8), _fma_rows(16))}
