"""Elementwise operators of one argument."""

from __future__ import annotations

from everport.frontend.onnx.context import NodeContext, Result, Rows


def _same(op: str):
    def convert(ctx: NodeContext) -> Result:
        return ctx.emit(op, ctx.required(0))

    return convert


UNARY: Rows = {
    "Neg": [(1, _same("neg"))],
    "Abs": [(1, _same("abs"))],
    "Sign": [(9, _same("sign"))],
    "Relu": [(1, _same("relu"))],
    "Not": [(1, _same("logical_not"))],
    "Reciprocal": [(1, _same("reciprocal"))],
    "Exp": [(1, _same("exp"))],
    "Sigmoid": [(1, _same("sigmoid"))],
}
