"""Buffers and regions of buffers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from everport.ir.dtype import DType
from everport.ir.node import Node
from everport.tir.expr import Const, Expr, ExprLike, Load, as_expr, as_int, const

SCOPES = ("global", "local", "register", "shared", "warp")


@dataclass(frozen=True, slots=True, eq=False)
class Buffer(Node):
    """A dense row-major array. `scope`: global (memory of the caller or a workspace), local (this thread's stack),
    register (this thread's registers: constant extents, constant indices after unrolling), shared and warp (GPU).

    Identity is the object. `buffer[i, j]` is a load. `align` is the byte alignment that its base is known to have.
    """

    name: str
    shape: tuple[Expr, ...]
    dtype: DType
    scope: str = "global"
    align: int = 0

    NODE_FIELDS = ("shape",)
    IS_BINDER = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(const(s) for s in self.shape))
        if self.scope not in SCOPES:
            raise ValueError(f"unknown scope {self.scope!r}; known: {', '.join(SCOPES)}")

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __getitem__(self, indices: ExprLike | Sequence[ExprLike]) -> Load:
        values = indices if isinstance(indices, tuple) else (indices,)
        if len(values) != len(self.shape):
            raise IndexError(f"buffer {self.name!r} has {len(self.shape)} dimensions, got {len(values)} indices")
        return Load(self, tuple(as_expr(v) for v in values))

    def numel(self) -> Expr:
        """The number of elements."""
        total: Expr = Const(1)
        for extent in self.shape:
            total = total * extent
        return total

    def static_shape(self) -> tuple[int, ...] | None:
        """The shape as integers, or None if any extent is symbolic."""
        values = tuple(as_int(s) for s in self.shape)
        return None if any(v is None for v in values) else values  # type: ignore[return-value]

    def __str__(self) -> str:
        scope = "" if self.scope == "global" else f", {self.scope!r}"
        return f"{self.name}: Buffer(({', '.join(map(str, self.shape))}), {self.dtype}{scope})"

    __repr__ = __str__

    def __reduce__(self) -> Any:
        return Buffer, (self.name, self.shape, self.dtype, self.scope, self.align)


@dataclass(frozen=True, slots=True, eq=False)
class Range(Node):
    """The half-open range min .. min + extent."""

    min: Expr
    extent: Expr
    NODE_FIELDS = ("min", "extent")

    def __str__(self) -> str:
        return str(self.min) if as_int(self.extent) == 1 else f"{self.min}:{self.min + self.extent}"


@dataclass(frozen=True, slots=True, eq=False)
class Region(Node):
    """A box of a buffer: one Range a dimension."""

    buffer: Buffer
    ranges: tuple[Range, ...]
    NODE_FIELDS = ("buffer", "ranges")

    def __str__(self) -> str:
        return f"{self.buffer.name}[{', '.join(map(str, self.ranges))}]"


def point_region(buffer: Buffer, indices: Sequence[Expr]) -> Region:
    """The region of a single element."""
    return Region(buffer, tuple(Range(i, Const(1)) for i in indices))


def full_region(buffer: Buffer) -> Region:
    """The whole buffer."""
    return Region(buffer, tuple(Range(Const(0), s) for s in buffer.shape))
