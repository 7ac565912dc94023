"""What a converter of an ONNX node sees: its inputs and attributes, and the builder it emits into."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import onnx

from everport.ir.errors import CompileError, UnsupportedError
from everport.ir.span import Span
from everport.relax.expr import Constant, RelaxExpr
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Expr, const

if TYPE_CHECKING:
    from everport.frontend.onnx.importer import GraphImporter

Result: TypeAlias = "RelaxExpr | Sequence[RelaxExpr | None]"
Converter: TypeAlias = "Callable[[NodeContext], Result]"
Rows: TypeAlias = "dict[str, list[tuple[int, Converter]]]"


def tensor_info(x: RelaxExpr) -> TensorInfo:
    """The struct info of a value that is a tensor."""
    assert isinstance(x.info, TensorInfo)
    return x.info


@dataclass(slots=True)
class NodeContext:
    """One node being imported. `inputs` holds None for optional inputs that are left out (trailing ones may be missing:
    use `input(k)`); `opset` is the version of the node's domain that the model imports."""

    importer: GraphImporter
    node: onnx.NodeProto
    inputs: list[RelaxExpr | None]
    attrs: dict[str, Any]
    opset: int
    span: Span

    def input(self, k: int) -> RelaxExpr | None:
        """Input `k`, or None if it is left out."""
        return self.inputs[k] if k < len(self.inputs) else None

    def required(self, k: int) -> RelaxExpr:
        """Input `k`; an UnsupportedError if it is left out."""
        value = self.input(k)
        if value is None:
            raise self.unsupported(f"input {k} is missing")
        return value

    def info(self, k: int) -> TensorInfo:
        """Struct info of input `k`."""
        info = self.required(k).info
        assert isinstance(info, TensorInfo)
        return info

    def attr(self, name: str, default: Any = None) -> Any:
        """An attribute as a Python value: int, float, str, list, np.ndarray (tensors), or GraphProto."""
        return self.attrs.get(name, default)

    def num_outputs(self) -> int:
        """How many outputs the node names (trailing empty names not counted)."""
        names = list(self.node.output)
        while names and not names[-1]:
            names.pop()
        return len(names)

    def wants_output(self, k: int) -> bool:
        """True if output `k` is named, that is, used or at least asked for."""
        return k < len(self.node.output) and bool(self.node.output[k])

    def emit(self, op: str, *args: RelaxExpr, **attrs: Any) -> RelaxExpr:
        """An operator call as a value; small calls on constants are folded at once."""
        return self.importer.emit(op, args, attrs, self.span)

    def emit_many(self, op: str, *args: RelaxExpr, **attrs: Any) -> tuple[RelaxExpr, ...]:
        """An operator call with several results."""
        return self.importer.emit_many(op, args, attrs, self.span)

    def constant(self, value: Any, dtype: Any = None) -> Constant:
        """A constant from a number, list or array."""
        return self.importer.constant(value, dtype)

    def const_value(self, k: int) -> np.ndarray | None:
        """The array of input `k` if it is known at compile time, else None."""
        value = self.input(k)
        return value.data if isinstance(value, Constant) else None

    def shape_value(self, k: int) -> np.ndarray | None:
        """Input `k` (an integer tensor) as an object array of ints and symbolic expressions, if its contents are known."""
        value = self.input(k)
        return None if value is None else self.importer.known_ints(value)

    def shape_list(self, k: int, what: str) -> list[Expr]:
        """The contents of a 1-D integer input as expressions; an UnsupportedError if they depend on data."""
        known = self.shape_value(k)
        if known is None:
            raise self.unsupported(f"{what} is computed from data at run time; it must be known from the input shapes")
        return [const(int(v)) if not isinstance(v, Expr) else v for v in np.ravel(known)]

    def int_list(self, k: int, what: str) -> list[int]:
        """The contents of an integer input as Python ints; an UnsupportedError if they are not compile-time constants."""
        known = self.shape_value(k)
        if known is None or any(isinstance(v, Expr) for v in np.ravel(known)):
            raise self.unsupported(f"{what} must be a compile-time constant")
        return [int(v) for v in np.ravel(known)]

    def shape_scalar(self, k: int, what: str) -> Expr:
        """The one element of an integer input as an expression; errors as `shape_list`, and if it is not one element."""
        return self._single(self.shape_list(k, what), what)

    def int_scalar(self, k: int, what: str) -> int:
        """The one element of an integer input as an int; errors as `int_list`, and if it is not one element."""
        return self._single(self.int_list(k, what), what)

    def _single(self, values: list[Any], what: str) -> Any:
        if len(values) != 1:
            raise CompileError(f"{what} must be one number, not {len(values)}", span=self.span)
        return values[0]

    def unsupported(self, reason: str) -> UnsupportedError:
        """An error to raise; the importer collects the errors of all nodes into one."""
        return UnsupportedError(reason, span=self.span)
