"""RNN, LSTM and GRU: the input's part of every gate in one product, then the steps one by one.

The steps are written out, so the length of the sequence must be known at compile time and at most `LONGEST`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows
from everport.frontend.onnx.shape import sliced
from everport.relax.expr import RelaxExpr
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Const, Expr, as_int

LONGEST = 128
Activation = Callable[[RelaxExpr], RelaxExpr]

# Parameters of activations where the node gives none: alpha, beta (None: it takes none).
DEFAULTS: dict[str, tuple[float | None, float | None]] = {
    "relu": (None, None), "tanh": (None, None), "sigmoid": (None, None), "softsign": (None, None), "softplus": (None, None),
    "affine": (1.0, 0.0), "leakyrelu": (0.01, None), "thresholdedrelu": (1.0, None), "scaledtanh": (1.0, 1.0),
    "hardsigmoid": (0.2, 0.5), "elu": (1.0, None),
}  # fmt: skip


class _Maths:
    """Arithmetic where numbers take the type of the tensors."""

    def __init__(self, ctx: NodeContext) -> None:
        self.ctx = ctx
        self.dtype = ctx.info(0).dtype.numpy

    def __call__(self, op: str, *args: RelaxExpr | float) -> RelaxExpr:
        values = [self.ctx.constant(np.asarray(a).astype(self.dtype)) if isinstance(a, (int, float)) else a for a in args]
        return self.ctx.emit(op, *values)

    def activation(self, name: str, alpha: float | None, beta: float | None) -> Activation:
        """The function of that name; its parameters where it takes any."""

        def apply(x: RelaxExpr) -> RelaxExpr:
            match name:
                case "relu" | "tanh" | "sigmoid":
                    return self(name, x)
                case "softsign":
                    return self("divide", x, self("add", 1, self("abs", x)))
                case "softplus":  # max(x, 0) + log(1 + exp(-|x|)): no overflow
                    small = self("exp", self("subtract", 0, self("abs", x)))
                    return self("add", self("maximum", x, 0), self("log", self("add", 1, small)))
                case "affine":
                    return self("add", self("multiply", alpha, x), beta)  # type: ignore[arg-type]
                case "leakyrelu":
                    return self("where", self("less", x, 0), self("multiply", alpha, x), x)  # type: ignore[arg-type]
                case "thresholdedrelu":
                    return self("where", self("greater", x, alpha), x, 0)  # type: ignore[arg-type]
                case "scaledtanh":
                    return self("multiply", alpha, self("tanh", self("multiply", beta, x)))  # type: ignore[arg-type]
                case "hardsigmoid":
                    line = self("add", self("multiply", alpha, x), beta)  # type: ignore[arg-type]
                    return self("maximum", self("minimum", line, 1), 0)
            below = self("multiply", alpha, self("subtract", self("exp", self("minimum", x, 0)), 1))  # type: ignore[arg-type]
            return self("where", self("less", x, 0), below, x)

        return apply


def _activations(ctx: NodeContext, maths: _Maths, default: list[str], directions: int) -> list[list[Activation]]:
    """One list a direction. The node's parameters go in order to the functions that take one."""
    names = [n.lower() for n in ctx.attr("activations") or default * directions]
    if len(names) != len(default) * directions or any(n not in DEFAULTS for n in names):
        raise ctx.unsupported(f"the activations {', '.join(ctx.attr('activations', []))} for {directions} direction(s)")
    alphas, betas = list(ctx.attr("activation_alpha") or []), list(ctx.attr("activation_beta") or [])
    made = []
    for n in names:
        alpha, beta = DEFAULTS[n]
        made.append(
            maths.activation(
                n,
                alphas.pop(0) if alpha is not None and alphas else alpha,
                betas.pop(0) if beta is not None and betas else beta,
            )
        )
    return [made[k * len(default) : (k + 1) * len(default)] for k in range(directions)]


@dataclass
class _Layer:
    """One direction of a layer: what a step needs besides the input's part and the state."""

    maths: _Maths
    hidden: int
    weights: RelaxExpr  # (hidden, gates * hidden): of the state
    input_bias: RelaxExpr | None  # (gates * hidden,)
    state_bias: RelaxExpr | None
    peepholes: list[RelaxExpr] | None
    activations: list[Activation]
    clip: float | None

    def gate(self, x: RelaxExpr, k: int) -> RelaxExpr:
        """Part `k` of (batch, gates * hidden)."""
        return sliced(self.maths.ctx, x, 1, Const(k * self.hidden), Const((k + 1) * self.hidden))

    def act(self, k: int, x: RelaxExpr) -> RelaxExpr:
        if self.clip is not None:
            x = self.maths("maximum", self.maths("minimum", x, self.clip), -self.clip)
        return self.activations[k](x)

    def state_part(self, h: RelaxExpr) -> RelaxExpr:
        product = self.maths("matmul", h, self.weights)
        return product if self.state_bias is None else self.maths("add", product, self.state_bias)


def _rnn_step(layer: _Layer, x: RelaxExpr, states: list[RelaxExpr]) -> list[RelaxExpr]:
    return [layer.act(0, layer.maths("add", x, layer.state_part(states[0])))]


def _lstm_step(layer: _Layer, x: RelaxExpr, states: list[RelaxExpr]) -> list[RelaxExpr]:
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""
    m, (h, c) = layer.maths, states
    gates = m("add", x, layer.state_part(h))
    parts = [layer.gate(gates, k) for k in range(4)]

    def peeped(k: int, cell: RelaxExpr) -> RelaxExpr:
        return parts[k] if layer.peepholes is None else m("add", parts[k], m("multiply", layer.peepholes[k], cell))

    i = layer.act(0, peeped(0, c))
    f = m("subtract", 1, i) if m.ctx.attr("input_forget", 0) else layer.act(0, peeped(2, c))
    cell = m("add", m("multiply", f, c), m("multiply", i, layer.act(1, parts[3])))
    o = layer.act(0, peeped(1, cell))
    return [m("multiply", o, layer.activations[2](cell)), cell]


def _gru_step(layer: _Layer, x: RelaxExpr, states: list[RelaxExpr]) -> list[RelaxExpr]:
    """Gates in the order update, reset, hidden."""
    m, h = layer.maths, states[0]
    state = layer.state_part(h)
    z, r = (layer.act(0, m("add", layer.gate(x, k), layer.gate(state, k))) for k in (0, 1))
    if m.ctx.attr("linear_before_reset", 0):
        inner = m("multiply", r, layer.gate(state, 2))
    else:
        inner = m("matmul", m("multiply", r, h), layer.gate(layer.weights, 2))
        if layer.state_bias is not None:
            inner = m("add", inner, sliced(m.ctx, layer.state_bias, 0, Const(2 * layer.hidden), Const(3 * layer.hidden)))
    new = layer.act(1, m("add", layer.gate(x, 2), inner))
    return [m("add", m("multiply", m("subtract", 1, z), new), m("multiply", z, h))]


def _shape(x: RelaxExpr) -> tuple[Expr, ...]:
    assert isinstance(x.info, TensorInfo)
    return x.info.shape


def _recurrent(step: Callable, gates: int, default: list[str], num_states: int) -> Converter:
    def convert(ctx: NodeContext) -> Result:
        maths = _Maths(ctx)
        direction, batch_first = ctx.attr("direction", "forward"), ctx.attr("layout", 0)
        directions = 2 if direction == "bidirectional" else 1
        if direction not in ("forward", "reverse", "bidirectional"):
            raise ctx.unsupported(f"the direction {direction!r}")
        x = ctx.required(0)
        if batch_first:
            x = ctx.emit("transpose", x, axes=(1, 0, 2))
        length, batch, width = _shape(x)
        steps, hidden = as_int(length), as_int(_shape(ctx.required(2))[-1])
        if steps is None or steps > LONGEST:
            raise ctx.unsupported(f"a recurrent layer of {length} steps (a known number of at most {LONGEST} is supported)")
        if hidden is None:
            raise ctx.unsupported("a recurrent layer whose width is not known at compile time")
        chosen = _activations(ctx, maths, default, directions)
        state_shape = (batch, Const(hidden))
        zeros = ctx.emit("full", ctx.constant(np.zeros((), maths.dtype)), shape=state_shape)
        active = None
        if ctx.input(4) is not None:
            lengths = ctx.emit("reshape", as_dtype(ctx, ctx.required(4), "i64"), shape=(batch, Const(1)))
            active = [ctx.emit("greater", lengths, ctx.constant(t, "i64")) for t in range(steps)]

        def part(k: int, d: int, first: int, stop: int) -> RelaxExpr | None:
            """Elements of row `d` of input `k`, a vector a direction."""
            value = ctx.input(k)
            if value is None:
                return None
            row = ctx.emit("reshape", sliced(ctx, value, 0, Const(d), Const(d + 1)), shape=_shape(value)[1:])
            return sliced(ctx, row, 0, Const(first), Const(stop))

        def matrix(k: int, d: int) -> RelaxExpr:
            value = ctx.required(k)
            one = ctx.emit("reshape", sliced(ctx, value, 0, Const(d), Const(d + 1)), shape=_shape(value)[1:])
            return ctx.emit("transpose", one, axes=(1, 0))

        outputs: list[list[RelaxExpr]] = []
        finals: list[list[RelaxExpr]] = []
        for d in range(directions):
            peepholes = None
            if step is _lstm_step and ctx.input(7) is not None:
                peepholes = [part(7, d, k * hidden, (k + 1) * hidden) for k in range(3)]
            layer = _Layer(
                maths, hidden, matrix(2, d), part(3, d, 0, gates * hidden), part(3, d, gates * hidden, 2 * gates * hidden),
                peepholes, chosen[d], ctx.attr("clip"),  # type: ignore[arg-type]
            )  # fmt: skip
            rows = ctx.emit("reshape", x, shape=(length * batch, width))
            inputs = ctx.emit("matmul", rows, matrix(1, d))
            if layer.input_bias is not None:
                inputs = maths("add", inputs, layer.input_bias)
            inputs = ctx.emit("reshape", inputs, shape=(length, batch, Const(gates * hidden)))
            states = [_initial(ctx, 5 + k, d, bool(batch_first), state_shape) or zeros for k in range(num_states)]
            made: list[RelaxExpr] = [zeros] * steps
            backward = direction == "reverse" or d == 1
            for t in reversed(range(steps)) if backward else range(steps):
                now = ctx.emit("reshape", sliced(ctx, inputs, 0, Const(t), Const(t + 1)), shape=(batch, Const(gates * hidden)))
                new = step(layer, now, states)
                made[t] = new[0]
                if active is not None:  # a sequence that has ended keeps its state and gives zeros
                    made[t] = maths("where", active[t], new[0], 0)
                    new = [maths("where", active[t], n, s) for n, s in zip(new, states, strict=True)]
                states = new
            outputs.append(made)
            finals.append(states)
        return _results(ctx, outputs, finals, batch, hidden, bool(batch_first), zeros)

    return convert


def _initial(ctx: NodeContext, k: int, d: int, batch_first: bool, shape: tuple[Expr, ...]) -> RelaxExpr | None:
    value = ctx.input(k)
    if value is None:
        return None
    return ctx.emit("reshape", sliced(ctx, value, int(batch_first), Const(d), Const(d + 1)), shape=shape)


def _results(
    ctx: NodeContext, outputs: list[list[RelaxExpr]], finals: list[list[RelaxExpr]], batch: Expr, hidden: int, batch_first: bool,
    zeros: RelaxExpr,
) -> list[RelaxExpr]:  # fmt: skip
    """Y (steps, directions, batch, hidden) and the last states (directions, batch, hidden); batch first where asked for."""

    def stacked(values: list[RelaxExpr], shape: tuple[Expr, ...]) -> RelaxExpr:
        whole = values[0] if len(values) == 1 else ctx.emit("concat", *values, axis=0) if values else zeros
        return ctx.emit("reshape", whole, shape=shape)

    directions, steps = len(outputs), len(outputs[0])
    if steps == 0:
        y = ctx.emit("full", ctx.constant(np.zeros((), ctx.info(0).dtype.numpy)), shape=(Const(0), Const(directions), batch, Const(hidden)))
    else:
        y = stacked([outputs[d][t] for t in range(steps) for d in range(directions)], (Const(steps), Const(directions), batch, Const(hidden)))
    last = [stacked([f[k] for f in finals], (Const(directions), batch, Const(hidden))) for k in range(len(finals[0]))]
    if batch_first:
        y = ctx.emit("transpose", y, axes=(2, 0, 1, 3))
        last = [ctx.emit("transpose", v, axes=(1, 0, 2)) for v in last]
    return [y, *last]


RECURRENT: Rows = {
    "RNN": [(7, _recurrent(_rnn_step, 1, ["tanh"], 1))],
    "LSTM": [(7, _recurrent(_lstm_step, 4, ["sigmoid", "tanh", "tanh"], 2))],
    "GRU": [(7, _recurrent(_gru_step, 3, ["sigmoid", "tanh"], 1))],
}
