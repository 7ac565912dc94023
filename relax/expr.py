"""Graph expressions in A-normal form: a function is a list of bindings of variables to calls, and a result.

Variables, constants, tuples and calls carry their struct info. Graph nodes have identity equality; ONNX names live in spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everport.ir.dtype import from_numpy
from everport.ir.node import Node
from everport.ir.span import Span
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.expr import Const as TirConst
from everport.tir.expr import Expr
from everport.tir.expr import Var as TirVar

Attrs = tuple[tuple[str, Any], ...]


class RelaxExpr(Node):
    """Base of graph expressions; `info` is the struct info."""

    __slots__ = ()
    info: StructInfo


@dataclass(frozen=True, slots=True, eq=False)
class Var(RelaxExpr):
    """A graph variable: a parameter or what a binding names."""

    name: str
    info: StructInfo
    NODE_FIELDS = ("info",)
    IS_BINDER = True

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True, eq=False)
class Constant(RelaxExpr):
    """A tensor known at compile time. `data` is a C-contiguous array that nobody writes; `name` (an initializer's name, or "")
    is for people and for the weights file, and doesn't count in comparisons."""

    data: np.ndarray
    name: str = ""
    NODE_IGNORED = ("span", "name")

    @property
    def info(self) -> TensorInfo:
        return TensorInfo(tuple(TirConst(d) for d in self.data.shape), from_numpy(self.data.dtype))

    def __str__(self) -> str:
        return f"const({self.name or self.data.dtype}{list(self.data.shape)})"


@dataclass(frozen=True, slots=True, eq=False)
class Tuple(RelaxExpr):
    """Several values as one."""

    fields: tuple[RelaxExpr, ...]
    NODE_FIELDS = ("fields",)

    @property
    def info(self) -> TupleInfo:
        return TupleInfo(tuple(f.info for f in self.fields))

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.fields))})"


@dataclass(frozen=True, slots=True, eq=False)
class TupleGetItem(RelaxExpr):
    """Field `index` of a tuple value."""

    value: RelaxExpr
    index: int
    NODE_FIELDS = ("value",)

    @property
    def info(self) -> StructInfo:
        outer = self.value.info
        if not isinstance(outer, TupleInfo):
            raise TypeError(f"{self.value} is not a tuple")
        return outer.fields[self.index]

    def __str__(self) -> str:
        return f"{self.value}[{self.index}]"


@dataclass(frozen=True, slots=True, eq=False)
class Call(RelaxExpr):
    """An operator of the table `relax.op.OPS` applied to arguments. Attributes are plain values, TIR expressions (a target
    shape) or tuples of them, sorted by name. `info` is what the operator's inference rule gave."""

    op: str
    args: tuple[RelaxExpr, ...]
    attrs: Attrs
    info: StructInfo
    NODE_FIELDS = ("args", "attrs", "info")

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)

    def __str__(self) -> str:
        inner = [str(a) for a in self.args] + [f"{k}={_show(v)}" for k, v in self.attrs]
        return f"{self.op}({', '.join(inner)})"


@dataclass(frozen=True, slots=True, eq=False)
class CallTIR(RelaxExpr):
    """A PrimFunc of the module in destination-passing style: `func` names it, `args` are its input tensors, `ints` the values
    of its scalar parameters in order; `info` is the output tensor, or a tuple of them."""

    func: str
    args: tuple[RelaxExpr, ...]
    ints: tuple[Expr, ...]
    info: StructInfo
    NODE_FIELDS = ("args", "ints", "info")

    def __str__(self) -> str:
        ints = f", ints=({', '.join(map(str, self.ints))})" if self.ints else ""
        return f"call_tir({self.func}, ({', '.join(map(str, self.args))}){ints})"


@dataclass(frozen=True, slots=True, eq=False)
class Binding(Node):
    """`var = value`. The value is a Call, CallTIR, Tuple, TupleGetItem, Constant or another Var (an alias)."""

    var: Var
    value: RelaxExpr
    span: Span | None = None
    NODE_FIELDS = ("value", "var")

    def __str__(self) -> str:
        return f"{self.var}: {self.var.info} = {self.value}"


@dataclass(frozen=True, slots=True, eq=False)
class MatchCast(Node):
    """`var = match_cast(value, var.info)`: asserts at run time that `value` has `var.info`, and binds the symbols that occur
    there for the first time (`defines`)."""

    var: Var
    value: RelaxExpr
    defines: tuple[TirVar, ...] = ()
    span: Span | None = None
    NODE_FIELDS = ("value", "defines", "var")

    def __str__(self) -> str:
        return f"{self.var} = match_cast({self.value}, {self.var.info})"


@dataclass(frozen=True, slots=True, eq=False)
class Function(Node):
    """`params` (their shape symbols are defined by first occurrence), `bindings` in order, and `result` (a Var, Constant, or a
    Tuple of these). Attributes: "output_names" (tuple of str), "input_names",
    "dim_ranges" (tuple of (symbol, lo, hi or None, divisor)), "constraints" (tuple of (a, b, reason): checked on each run)."""

    name: str
    params: tuple[Var, ...]
    bindings: tuple[Binding | MatchCast, ...]
    result: RelaxExpr
    attrs: Attrs = ()
    span: Span | None = None
    NODE_FIELDS = ("params", "bindings", "result", "attrs")
    NODE_IGNORED = ("span", "name")

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)

    def with_attr(self, **changes: Any) -> Function:
        return self.with_fields(attrs=tuple(sorted({**dict(self.attrs), **changes}.items())))

    @property
    def results(self) -> tuple[RelaxExpr, ...]:
        """The results as a flat tuple."""
        return self.result.fields if isinstance(self.result, Tuple) else (self.result,)


def make_attrs(values: Mapping[str, Any]) -> Attrs:
    """Attributes in canonical form: sorted, lists as tuples, None left out."""
    return tuple(sorted((k, _freeze(v)) for k, v in values.items() if v is not None))


def _freeze(value: Any) -> Any:
    return tuple(_freeze(v) for v in value) if isinstance(value, (list, tuple)) else value


def _show(value: Any) -> str:
    if isinstance(value, tuple):
        return f"({', '.join(_show(v) for v in value)}{',' if len(value) == 1 else ''})"
    return repr(value) if isinstance(value, str) else str(value)


def constant(data: np.ndarray | Sequence | float, name: str = "", dtype: Any = None) -> Constant:
    """A Constant from anything numpy reads; the array is made contiguous and read-only."""
    array = np.ascontiguousarray(np.asarray(data, dtype=dtype)).reshape(np.shape(data))
    if array.flags.writeable:
        array = array.copy() if array is data else array
        array.flags.writeable = False
    return Constant(array, name)
