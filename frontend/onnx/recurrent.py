"""RNN, LSTM and GRU: the input's part of every gate in one product, then the steps one by one.

The steps are written out, so the length of the sequence must be known at compile time and at most `LONGEST`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import Converter, NodeContext, Result, Rows, tensor_info
from everport.frontend.onnx.shape import sliced
from everport.frontend.onnx.unary import ACTIVATIONS
from everport.relax.expr import RelaxExpr
from everport.tir.expr import Const, Expr, as_int

LONGEST = 128
Activation = Callable[[RelaxExpr], RelaxExpr]


class _Maths:
    """Arithmetic where numbers take the type of the tensors."""

    def __init__(self, ctx: NodeContext) -> None:
        self.ctx = ctx
        self.dtype = ctx.info(0).dtype.numpy

    def __call__(self, op: str, *args: RelaxExpr | float) -> RelaxExpr:
        values = [self.ctx.constant(np.asarray(a).astype(self.dtype)) if isinstance(a, (int, float)) else a for a in args]
        return self.ctx.emit(op, *values)


def _activations(ctx: NodeContext, default: list[str], directions: int) -> list[list[Activation]]:
    """One list a direction. The node's parameters go in order to the functions that take one; case does not count."""
    known = {n.lower(): pair for n, pair in ACTIVATIONS.items()}
    names = ctx.attr("activations") or default * directions
    if len(names) != len(default) * directions or any(n.lower() not in known for n in names):
        raise ctx.unsupported(f"the activations {', '.join(names)} for {directions} direction(s)")
    given = {p: list(ctx.attr(f"activation_{p}") or []) for p in ("alpha", "beta")}
    made: list[Activation] = []
    for n in names:
        function, defaults = known[n.lower()]
        chosen = [given[p].pop(0) if given[p] else v for p, v in defaults.items()]
        made.append(lambda x, function=function, chosen=chosen: function(ctx, x, *chosen))
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

    def state_part(self, h: RelaxExpr, first: int, stop: int) -> RelaxExpr:
        """What the state adds to gates `first` to `stop`: (batch, (stop - first) * hidden)."""
        start, end = Const(first * self.hidden), Const(stop * self.hidden)
        product = self.maths("matmul", h, sliced(self.maths.ctx, self.weights, 1, start, end))
        if self.state_bias is None:
            return product
        return self.maths("add", product, sliced(self.maths.ctx, self.state_bias, 0, start, end))


def _rnn_step(layer: _Layer, x: RelaxExpr, states: list[RelaxExpr]) -> list[RelaxExpr]:
    return [layer.act(0, layer.maths("add", x, layer.state_part(states[0], 0, 1)))]


def _lstm_step(layer: _Layer, x: RelaxExpr, states: list[RelaxExpr]) -> list[RelaxExpr]:
    """Gates in the order input, output, forget, cell; peepholes input, output, forget."""
    m, (h, c) = layer.maths, states
    gates = m("add", x, layer.state_part(h, 0, 4))
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
    state = layer.state_part(h, 0, 2)
    z, r = (layer.act(0, m("add", layer.gate(x, k), layer.gate(state, k))) for k in (0, 1))
    if m.ctx.attr("linear_before_reset", 0):
        inner = m("multiply", r, layer.state_part(h, 2, 3))
    else:
        inner = layer.state_part(m("multiply", r, h), 2, 3)
    new = layer.act(1, m("add", layer.gate(x, 2), inner))
    return [m("add", m("multiply", m("subtract", 1, z), new), m("multiply", z, h))]


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
        length, batch, width = tensor_info(x).shape
        steps, hidden = as_int(length), as_int(tensor_info(ctx.required(2)).shape[-1])
        if steps is None:
            raise ctx.unsupported(f"the number of steps of a recurrent layer must be known at compile time; here it is {length}, which --dim can fix")
        if steps > LONGEST:
            raise ctx.unsupported(f"a recurrent layer of {steps} steps; at most {LONGEST} are supported")
        if hidden is None:
            raise ctx.unsupported("a recurrent layer whose width is not known at compile time")
        chosen = _activations(ctx, default, directions)
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
            row = ctx.emit("reshape", sliced(ctx, value, 0, Const(d), Const(d + 1)), shape=tensor_info(value).shape[1:])
            return sliced(ctx, row, 0, Const(first), Const(stop))

        def matrix(k: int, d: int) -> RelaxExpr:
            value = ctx.required(k)
            one = ctx.emit("reshape", sliced(ctx, value, 0, Const(d), Const(d + 1)), shape=tensor_info(value).shape[1:])
            return ctx.emit("transpose", one, axes=(1, 0))

        outputs: list[list[RelaxExpr]] = []
        finals: list[list[RelaxExpr]] = []
        for d in range(directions):
            peepholes = None
            if step is _lstm_step and ctx.input(7) is not None:
                peepholes = [part(7, d, k * hidden, (k + 1) * hidden) for k in range(3)]
            layer = _Layer(
                maths, hidden, matrix(2, d), part(3, d, 0, gates * hidden), part(3, d, gates * hidden, 2 * gates * hidden),
                peepholes, chosen[d], ctx.attr("clip"),
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
    "RNN": [(7, _recurrent(_rnn_step, 1, ["Tanh"], 1))],
    "LSTM": [(7, _recurrent(_lstm_step, 4, ["Sigmoid", "Tanh", "Tanh"], 2))],
    "GRU": [(7, _recurrent(_gru_step, 3, ["Sigmoid", "Tanh"], 1))],
}
