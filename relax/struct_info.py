"""Struct info: what is known of a value at compile time (Relax, Lai et al. 2023, section 3.1). Dimensions are TIR expressions."""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.dtype import DType
from everport.ir.node import Node
from everport.tir.expr import Const, Expr, as_int, const


class StructInfo(Node):
    """Base of all struct info."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class TensorInfo(StructInfo):
    """A dense tensor: `shape` (one i64 expression a dimension; rank is always known) and element type."""

    shape: tuple[Expr, ...]
    dtype: DType
    NODE_FIELDS = ("shape",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(const(s) for s in self.shape))

    @property
    def rank(self) -> int:
        return len(self.shape)

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None if any dimension is symbolic."""
        values = tuple(as_int(s) for s in self.shape)
        return None if any(v is None for v in values) else values  # type: ignore[return-value]

    def numel(self) -> Expr:
        total: Expr = Const(1)
        for extent in self.shape:
            total = total * extent
        return total

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.shape)) + ("," if len(self.shape) == 1 else "")
        return f"Tensor(({inner}), {self.dtype})"


@dataclass(frozen=True, slots=True, eq=False)
class ShapeInfo(StructInfo):
    """A shape as a value."""

    values: tuple[Expr, ...]
    NODE_FIELDS = ("values",)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.values)) + ("," if len(self.values) == 1 else "")
        return f"Shape(({inner}))"


@dataclass(frozen=True, slots=True, eq=False)
class PrimInfo(StructInfo):
    """A scalar outside any tensor."""

    dtype: DType

    def __str__(self) -> str:
        return f"Prim({self.dtype})"


@dataclass(frozen=True, slots=True, eq=False)
class TupleInfo(StructInfo):
    """A tuple of values."""

    fields: tuple[StructInfo, ...]
    NODE_FIELDS = ("fields",)

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.fields))})"


@dataclass(frozen=True, slots=True, eq=False)
class FuncInfo(StructInfo):
    """A function from parameters to a result."""

    params: tuple[StructInfo, ...]
    result: StructInfo
    NODE_FIELDS = ("params", "result")

    def __str__(self) -> str:
        return f"Func(({', '.join(map(str, self.params))}), {self.result})"
