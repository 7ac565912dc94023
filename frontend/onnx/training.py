"""Optimizer steps of ai.onnx.preview.training: a step maps parameters, gradients and their state to the next ones."""

from __future__ import annotations

from typing import Any

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import NodeContext, Result, Rows, tensor_info
from everport.frontend.onnx.unary import like
from everport.relax.expr import RelaxExpr


class _Step:
    """The arithmetic of one node's update, in the type of its tensors."""

    def __init__(self, ctx: NodeContext, kinds: int) -> None:
        self.ctx = ctx
        tensors = [ctx.required(k) for k in range(2, len(ctx.inputs))]
        if not tensors or len(tensors) % kinds:
            raise ctx.unsupported(f"the tensors after the rate and the step are not {kinds} groups of one size")
        self.count = len(tensors) // kinds
        self.tensors = tensors
        self.rate = ctx.emit("reshape", ctx.required(0), shape=())
        self.step = ctx.emit("reshape", ctx.required(1), shape=())

    def group(self, k: int) -> list[RelaxExpr]:
        """The tensors of group `k`: parameters, gradients, then state."""
        return self.tensors[k * self.count : (k + 1) * self.count]

    def __call__(self, op: str, a: Any, b: Any) -> RelaxExpr:
        """A binary operator; a number takes the type of the other argument."""
        x = like(self.ctx, a, b) if isinstance(a, (int, float)) else a
        y = like(self.ctx, b, a) if isinstance(b, (int, float)) else b
        return self.ctx.emit(op, x, y)

    def regularized(self, x: RelaxExpr, g: RelaxExpr) -> RelaxExpr:
        """The gradient with that of the L2 penalty norm_coefficient / 2 * |x|^2."""
        factor = self.ctx.attr("norm_coefficient", 0.0)
        return self("add", self("multiply", factor, x), g) if factor else g

    def after_first(self, later: RelaxExpr, first: Any) -> RelaxExpr:
        """`later` from the second step on, `first` in the step numbered 0."""
        zero = self.ctx.constant(0, tensor_info(self.step).dtype)
        other = like(self.ctx, first, later) if isinstance(first, (int, float)) else first
        return self.ctx.emit("where", self.ctx.emit("greater", self.step, zero), later, other)


def _adagrad(ctx: NodeContext) -> Result:
    step = _Step(ctx, 3)
    count = as_dtype(ctx, step.step, ctx.info(0).dtype.name)
    rate = step("divide", step.rate, step("add", 1, step("multiply", ctx.attr("decay_factor", 0.0), count)))
    parameters, squares = [], []
    for x, g, h in zip(step.group(0), step.group(1), step.group(2), strict=True):
        gradient = step.regularized(x, g)
        total = step("add", h, step("multiply", gradient, gradient))
        scale = step("add", ctx.emit("sqrt", total), ctx.attr("epsilon", 1e-6))
        move = step("divide", step("multiply", as_dtype(ctx, rate, tensor_info(x).dtype.name), gradient), scale)
        parameters.append(step("subtract", x, move))
        squares.append(total)
    return [*parameters, *squares]


def _momentum(ctx: NodeContext) -> Result:
    step = _Step(ctx, 3)
    alpha, beta, mode = ctx.attr("alpha"), ctx.attr("beta"), ctx.attr("mode")
    if mode not in ("standard", "nesterov"):
        raise ctx.unsupported(f"the momentum mode {mode!r}")
    parameters, velocities = [], []
    for x, g, v in zip(step.group(0), step.group(1), step.group(2), strict=True):
        gradient = step.regularized(x, g)
        weight = step.after_first(like(ctx, beta, x), 1)
        velocity = step("add", step("multiply", alpha, v), step("multiply", weight, gradient))
        ahead = step("add", gradient, step("multiply", alpha, velocity)) if mode == "nesterov" else velocity
        parameters.append(step("subtract", x, step("multiply", as_dtype(ctx, step.rate, tensor_info(x).dtype.name), ahead)))
        velocities.append(velocity)
    return [*parameters, *velocities]


def _adam(ctx: NodeContext) -> Result:
    step = _Step(ctx, 4)
    alpha, beta, post = ctx.attr("alpha", 0.9), ctx.attr("beta", 0.999), ctx.attr("norm_coefficient_post", 0.0)
    # The bias corrections are near 1 - 1 in early steps: f64 keeps their digits.
    count = as_dtype(ctx, step.step, "f64")
    first, second = (step("subtract", 1, ctx.emit("power", ctx.constant(np.float64(b)), count)) for b in (alpha, beta))
    rate = as_dtype(ctx, step.rate, "f64")
    rate = step.after_first(step("divide", step("multiply", rate, ctx.emit("sqrt", second)), first), rate)
    parameters, means, squares = [], [], []
    for x, g, v, h in zip(*(step.group(k) for k in range(4)), strict=True):
        gradient = step.regularized(x, g)
        mean = step("add", step("multiply", alpha, v), step("multiply", 1 - alpha, gradient))
        square = step("add", step("multiply", beta, h), step("multiply", 1 - beta, step("multiply", gradient, gradient)))
        scale = step("add", ctx.emit("sqrt", square), ctx.attr("epsilon", 1e-6))
        moved = step("subtract", x, step("divide", step("multiply", as_dtype(ctx, rate, tensor_info(x).dtype.name), mean), scale))
        parameters.append(step("multiply", 1 - post, moved) if post else moved)
        means.append(mean)
        squares.append(square)
    return [*parameters, *means, *squares]


TRAINING: Rows = {
    "Adagrad": [(1, _adagrad)],
    "Momentum": [(1, _momentum)],
    "Adam": [(1, _adam)],
}
