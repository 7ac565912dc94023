"""Packed convolution weights: constants and dequantised ones, with the meaning kept; others stay."""

from __future__ import annotations

import numpy as np

from everport.ir.dtype import f32
from everport.ir.module import IRModule
from everport.relax.builder import Builder
from everport.relax.expr import Call, RelaxExpr, constant
from everport.relax.interp import evaluate
from everport.relax.passes.dead_code import DeadCode
from everport.relax.passes.pack_weights import PackWeights
from everport.relax.struct_info import TensorInfo
from everport.relax.verify import verify_module
from everport.tir.expr import Const

SOURCE = np.random.default_rng(0)
WEIGHTS = SOURCE.integers(-8, 8, (8, 3, 2, 2)).astype(np.int8)
HOW = {"strides": (1, 1), "dilations": (1, 1), "before": (0, 0), "after": (0, 0)}


def convolved(make, group: int = 1) -> tuple[list[Call], list[Call]]:
    """The calls before and after packing of a convolution whose weights `make` gives; both compute the same."""
    b = Builder()
    x = b.param("x", TensorInfo(tuple(map(Const, (1, 3 * group, 5, 5))), f32))
    y = b.emit("conv", x, make(b, x), group=group, **HOW)
    before = IRModule({"main": b.finish([y], ["y"])})
    after = DeadCode()(PackWeights()(before))
    verify_module(after)
    inputs = {"x": SOURCE.standard_normal((1, 3 * group, 5, 5)).astype(np.float32)}
    np.testing.assert_allclose(evaluate(after, inputs)["y"], evaluate(before, inputs)["y"], rtol=1e-5, atol=1e-5)
    return tuple([v.value for v in m["main"].bindings if isinstance(v.value, Call)] for m in (before, after))  # type: ignore[return-value]


def dequantised(b: Builder, _: RelaxExpr) -> RelaxExpr:
    scale = constant(SOURCE.uniform(0.1, 1, (8, 1, 1, 1)).astype(np.float32))
    centred = b.emit("subtract", b.emit("cast", constant(WEIGHTS), to="f32"), constant(np.float32(3)))
    return b.emit("multiply", centred, scale)


def test_constant_weights_are_packed() -> None:
    _, after = convolved(lambda b, x: constant(WEIGHTS.astype(np.float32)))
    assert [c.attr("weights") for c in after] == ["io"]


def test_dequantised_weights_are_packed_behind_their_constants() -> None:
    before, after = convolved(dequantised)
    assert [c.op for c in after] == [c.op for c in before] == ["cast", "subtract", "multiply", "conv"]
    assert after[-1].attr("weights") == "io"
    assert after[0].args[0].data.dtype == np.int8  # type: ignore[attr-defined]


def test_other_weights_stay() -> None:
    computed = lambda b, x: b.emit("multiply", dequantised(b, x), b.emit("reduce_sum", x, axes=(0, 1, 2, 3), keepdims=0))  # noqa: E731
    narrow = lambda b, x: b.emit("multiply", dequantised(b, x), constant(np.ones(2, np.float32)))  # noqa: E731
    for make, group in ((computed, 1), (narrow, 1), (dequantised, 2)):
        _, after = convolved(make, group)
        assert after[-1].attr("weights") is None
