"""Elementwise operators of one argument, and activations written with them."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows, tensor_info
from everport.relax.expr import RelaxExpr


def same(op: str) -> Converter:
    """The operator of the same meaning on the first input."""

    def convert(ctx: NodeContext) -> Result:
        return ctx.emit(op, ctx.required(0))

    return convert


def like(ctx: NodeContext, value: float, x: RelaxExpr | None = None) -> RelaxExpr:
    """A scalar constant of x's type (default: the first input's)."""
    return ctx.constant(np.asarray(value).astype(tensor_info(x or ctx.required(0)).dtype.numpy))


def elu(ctx: NodeContext, x: RelaxExpr, alpha: float) -> RelaxExpr:
    inner = ctx.emit("multiply", like(ctx, alpha, x), _expm1(ctx, x))
    return ctx.emit("where", ctx.emit("greater", x, like(ctx, 0, x)), x, inner)


def _expm1(ctx: NodeContext, x: RelaxExpr) -> RelaxExpr:
    return ctx.emit("subtract", ctx.emit("exp", ctx.emit("minimum", x, like(ctx, 0, x))), like(ctx, 1, x))


def _selu(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    alpha, gamma = ctx.attr("alpha", 1.67326319217681884765625), ctx.attr("gamma", 1.05070102214813232421875)
    inner = ctx.emit("multiply", like(ctx, alpha), _expm1(ctx, x))
    return ctx.emit("multiply", like(ctx, gamma), ctx.emit("where", ctx.emit("greater", x, like(ctx, 0)), x, inner))


def _celu(ctx: NodeContext) -> Result:
    x, alpha = ctx.required(0), ctx.attr("alpha", 1.0)
    inner = ctx.emit("multiply", like(ctx, alpha), _expm1(ctx, ctx.emit("divide", x, like(ctx, alpha))))
    return ctx.emit("add", ctx.emit("relu", x), ctx.emit("minimum", like(ctx, 0), inner))


def leaky_relu(ctx: NodeContext, x: RelaxExpr, alpha: float) -> RelaxExpr:
    return ctx.emit("where", ctx.emit("less", x, like(ctx, 0, x)), ctx.emit("multiply", x, like(ctx, alpha, x)), x)


def _prelu(ctx: NodeContext) -> Result:
    x, slope = ctx.required(0), ctx.required(1)
    return ctx.emit("where", ctx.emit("less", x, like(ctx, 0)), ctx.emit("multiply", x, slope), x)


def thresholded_relu(ctx: NodeContext, x: RelaxExpr, alpha: float) -> RelaxExpr:
    return ctx.emit("where", ctx.emit("greater", x, like(ctx, alpha, x)), x, like(ctx, 0, x))


def hard_sigmoid(ctx: NodeContext, x: RelaxExpr, alpha: float, beta: float) -> RelaxExpr:
    line = affine(ctx, x, alpha, beta)
    return ctx.emit("maximum", like(ctx, 0, x), ctx.emit("minimum", like(ctx, 1, x), line))


def affine(ctx: NodeContext, x: RelaxExpr, alpha: float, beta: float) -> RelaxExpr:
    return ctx.emit("add", ctx.emit("multiply", x, like(ctx, alpha, x)), like(ctx, beta, x))


def scaled_tanh(ctx: NodeContext, x: RelaxExpr, alpha: float, beta: float) -> RelaxExpr:
    return ctx.emit("multiply", like(ctx, alpha, x), ctx.emit("tanh", ctx.emit("multiply", like(ctx, beta, x), x)))


def activation(name: str) -> Converter:
    """The activation of that name on the first input; parameters are attributes."""
    function, defaults = ACTIVATIONS[name]

    def convert(ctx: NodeContext) -> Result:
        return function(ctx, ctx.required(0), *(ctx.attr(p, v) for p, v in defaults.items()))

    return convert


def _hard_swish(ctx: NodeContext) -> Result:
    return ctx.emit("multiply", ctx.required(0), hard_sigmoid(ctx, ctx.required(0), 1 / 6, 0.5))


def softsign(ctx: NodeContext, x: RelaxExpr) -> RelaxExpr:
    return ctx.emit("divide", x, ctx.emit("add", like(ctx, 1, x), ctx.emit("abs", x)))


def _mish(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    return ctx.emit("multiply", x, ctx.emit("tanh", ctx.emit("softplus", x)))


def _swish(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    return ctx.emit("multiply", x, ctx.emit("sigmoid", ctx.emit("multiply", x, like(ctx, ctx.attr("alpha", 1.0)))))


def _gelu(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    if ctx.attr("approximate", "none") == "tanh":
        cube = ctx.emit("multiply", ctx.emit("multiply", x, x), x)
        inner = ctx.emit("add", x, ctx.emit("multiply", like(ctx, 0.044715), cube))
        gate = ctx.emit("tanh", ctx.emit("multiply", like(ctx, math.sqrt(2 / math.pi)), inner))
    else:
        gate = ctx.emit("erf", ctx.emit("multiply", x, like(ctx, math.sqrt(0.5))))
    half = ctx.emit("multiply", x, like(ctx, 0.5))
    return ctx.emit("multiply", half, ctx.emit("add", gate, like(ctx, 1)))


def _shrink(ctx: NodeContext) -> Result:
    x, lambd, bias = ctx.required(0), ctx.attr("lambd", 0.5), ctx.attr("bias", 0.0)
    low = ctx.emit("where", ctx.emit("less", x, like(ctx, -lambd)), ctx.emit("add", x, like(ctx, bias)), like(ctx, 0))
    return ctx.emit("where", ctx.emit("greater", x, like(ctx, lambd)), ctx.emit("subtract", x, like(ctx, bias)), low)


def _isinf(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    found = ctx.emit("isinf", x)
    if not ctx.attr("detect_negative", 1):
        found = ctx.emit("logical_and", found, ctx.emit("greater", x, like(ctx, 0)))
    if not ctx.attr("detect_positive", 1):
        found = ctx.emit("logical_and", found, ctx.emit("less", x, like(ctx, 0)))
    return found


def _clip_old(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    low, high = ctx.attr("min"), ctx.attr("max")
    if low is not None:
        x = ctx.emit("maximum", x, like(ctx, low))
    return x if high is None else ctx.emit("minimum", x, like(ctx, high))


def _clip(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    low, high = ctx.input(1), ctx.input(2)
    if low is not None:
        x = ctx.emit("maximum", x, low)
    return x if high is None else ctx.emit("minimum", x, high)


def _identity(ctx: NodeContext) -> Result:
    return ctx.required(0)


def _dropout(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    training = ctx.const_value(2)
    if ctx.input(2) is not None and training is None:
        raise ctx.unsupported("dropout with a training_mode computed at run time")
    ratio = ctx.const_value(1)
    if training is not None and bool(training.reshape(-1)[0]) and not (ratio is not None and float(ratio.reshape(-1)[0]) == 0):
        raise ctx.unsupported("dropout in training mode")
    if not ctx.wants_output(1):
        return [x]
    one = ctx.constant(True, "bool")
    return [x, ctx.emit("full", one, shape=tuple(ctx.info(0).shape))]


def _plain(op: str) -> Callable[..., RelaxExpr]:
    return lambda ctx, x: ctx.emit(op, x)


# Activations by the names that recurrent layers use too: the function of a value, and the defaults of its parameters.
ACTIVATIONS: dict[str, tuple[Callable[..., RelaxExpr], dict[str, float]]] = {
    "Relu": (_plain("relu"), {}),
    "Tanh": (_plain("tanh"), {}),
    "Sigmoid": (_plain("sigmoid"), {}),
    "Softplus": (_plain("softplus"), {}),
    "Softsign": (softsign, {}),
    "Elu": (elu, {"alpha": 1.0}),
    "LeakyRelu": (leaky_relu, {"alpha": 0.01}),
    "ThresholdedRelu": (thresholded_relu, {"alpha": 1.0}),
    "HardSigmoid": (hard_sigmoid, {"alpha": 0.2, "beta": 0.5}),
    "Affine": (affine, {"alpha": 1.0, "beta": 0.0}),
    "ScaledTanh": (scaled_tanh, {"alpha": 1.0, "beta": 1.0}),
}

UNARY: Rows = {
    "Neg": [(1, same("neg"))],
    "Abs": [(1, same("abs"))],
    "Sign": [(9, same("sign"))],
    "Relu": [(1, activation("Relu"))],
    "Not": [(1, same("logical_not"))],
    "BitwiseNot": [(18, same("bitwise_not"))],
    "Reciprocal": [(1, same("reciprocal"))],
    "Exp": [(1, same("exp"))],
    "Log": [(1, same("log"))],
    "Sqrt": [(1, same("sqrt"))],
    "Sin": [(7, same("sin"))],
    "Cos": [(7, same("cos"))],
    "Tan": [(7, same("tan"))],
    "Asin": [(7, same("asin"))],
    "Acos": [(7, same("acos"))],
    "Atan": [(7, same("atan"))],
    "Sinh": [(9, same("sinh"))],
    "Cosh": [(9, same("cosh"))],
    "Tanh": [(1, activation("Tanh"))],
    "Asinh": [(9, same("asinh"))],
    "Acosh": [(9, same("acosh"))],
    "Atanh": [(9, same("atanh"))],
    "Erf": [(9, same("erf"))],
    "Sigmoid": [(1, activation("Sigmoid"))],
    "Floor": [(1, same("floor"))],
    "Ceil": [(1, same("ceil"))],
    "Round": [(11, same("round"))],
    "IsNaN": [(9, same("isnan"))],
    "IsInf": [(10, _isinf)],
    "Softplus": [(1, activation("Softplus"))],
    "Softsign": [(1, activation("Softsign"))],
    "Elu": [(1, activation("Elu"))],
    "Selu": [(1, _selu)],
    "Celu": [(12, _celu)],
    "LeakyRelu": [(1, activation("LeakyRelu"))],
    "PRelu": [(7, _prelu)],
    "ThresholdedRelu": [(10, activation("ThresholdedRelu"))],
    "HardSigmoid": [(1, activation("HardSigmoid"))],
    "HardSwish": [(14, _hard_swish)],
    "Mish": [(18, _mish)],
    "Swish": [(24, _swish)],
    "Gelu": [(20, _gelu)],
    "Shrink": [(9, _shrink)],
    "Clip": [(1, _clip_old), (11, _clip)],
    "Identity": [(1, _identity)],
    "Dropout": [(7, _dropout)],
}
