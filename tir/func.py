"""PrimFunc: a loop program over buffers and integer parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everport.ir.node import Node
from everport.ir.span import Span
from everport.tir.buffer import Buffer
from everport.tir.expr import Var
from everport.tir.stmt import Block, Stmt, blocks_of


@dataclass(frozen=True, slots=True, eq=False)
class PrimFunc(Node):
    """`params` are buffers (inputs, then outputs, then workspaces) followed by scalar variables (i64: the shape symbols and
    integers it needs); every free variable is a parameter. Before lowering `body` is the root block (no iterators), whose
    `allocs` are the intermediate buffers. `attrs` are plain values by name, sorted: "num_outputs" (int), "kind" (fusion
    kind), "stage" ("scheduled" by default, "device" once lowered), "num_workspaces" (device), "flops" (an Expr, optional).
    """

    name: str
    params: tuple[Buffer | Var, ...]
    body: Stmt
    attrs: tuple[tuple[str, Any], ...] = ()
    span: Span | None = None
    NODE_FIELDS = ("params", "body", "attrs")
    NODE_IGNORED = ("span", "name")

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        return tuple(p for p in self.params if isinstance(p, Buffer))

    @property
    def scalars(self) -> tuple[Var, ...]:
        return tuple(p for p in self.params if isinstance(p, Var))

    @property
    def num_outputs(self) -> int:
        return self.attr("num_outputs", 1)

    @property
    def num_workspaces(self) -> int:
        return self.attr("num_workspaces", 0)

    @property
    def inputs(self) -> tuple[Buffer, ...]:
        return self.buffers[: len(self.buffers) - self.num_outputs - self.num_workspaces]

    @property
    def outputs(self) -> tuple[Buffer, ...]:
        start = len(self.inputs)
        return self.buffers[start : start + self.num_outputs]

    def attr(self, name: str, default: Any = None) -> Any:
        return dict(self.attrs).get(name, default)

    def with_attr(self, **changes: Any) -> PrimFunc:
        return self.with_fields(attrs=tuple(sorted({**dict(self.attrs), **changes}.items())))

    @property
    def root(self) -> Block:
        if not isinstance(self.body, Block):
            raise TypeError(f"PrimFunc {self.name!r} is lowered: it has no root block")
        return self.body

    def block(self, name: str) -> Block:
        """The block called `name`; KeyError lists the names."""
        found = {b.name: b for b in blocks_of(self.body)}
        if name not in found:
            raise KeyError(f"no block {name!r} in {self.name!r}; it has: {', '.join(found)}")
        return found[name]
