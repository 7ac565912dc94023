"""Statements and blocks.

A block isolates a computation: outer transformations rely on its signature (iterators, read and write regions) alone
(TensorIR, Feng et al. 2023, section 3). A loop is named by its variable, a block by its name, unique in the function.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from everport.ir.dtype import boolean
from everport.ir.node import Node, pre_order
from everport.ir.span import Span
from everport.tir.buffer import Buffer, Region
from everport.tir.expr import Const, Expr, ExprLike, Var, as_expr, const

LOOP_KINDS = ("serial", "parallel", "vectorized", "unrolled", "thread")
ITER_KINDS = ("spatial", "reduce", "opaque")
TRUE = Const(1, boolean)


class Stmt(Node):
    """Base of all statements."""

    __slots__ = ()

    def __str__(self) -> str:
        return type(self).__name__


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    """`buffer[indices] = value`. After lowering: one flat index; `value` and index may be vectors; `mask` (bool, same lanes)
    limits a vector store to its true lanes."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    mask: Expr | None = None
    span: Span | None = None
    NODE_FIELDS = ("buffer", "indices", "value", "mask")

    def __post_init__(self) -> None:
        object.__setattr__(self, "indices", tuple(const(i) for i in self.indices))
        if self.value.dtype != self.buffer.dtype:
            raise TypeError(f"a {self.value.dtype} value is stored into {self.buffer.name!r} of {self.buffer.dtype}")


@dataclass(frozen=True, slots=True, eq=False)
class Seq(Stmt):
    """Statements one after the other; never directly nested (use `seq`)."""

    stmts: tuple[Stmt, ...]
    NODE_FIELDS = ("stmts",)


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """`for var in range(extent)`: loops start at 0. `kind` serial, parallel, vectorized, unrolled, or thread (with
    `thread` naming the axis: blockIdx.x, threadIdx.y, ...). `annotations` are plain values by name, sorted."""

    var: Var
    extent: Expr
    body: Stmt
    kind: str = "serial"
    thread: str | None = None
    annotations: tuple[tuple[str, Any], ...] = ()
    span: Span | None = None
    NODE_FIELDS = ("var", "extent", "body")

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", const(self.extent))
        if self.kind not in LOOP_KINDS:
            raise ValueError(f"unknown loop kind {self.kind!r}; known: {', '.join(LOOP_KINDS)}")


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    """`if cond: then else: otherwise`."""

    cond: Expr
    then: Stmt
    otherwise: Stmt | None = None
    span: Span | None = None
    NODE_FIELDS = ("cond", "then", "otherwise")


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    """`while cond: body`; only inside a block body (searches, data-dependent loops)."""

    cond: Expr
    body: Stmt
    span: Span | None = None
    NODE_FIELDS = ("cond", "body")


@dataclass(frozen=True, slots=True, eq=False)
class Let(Stmt):
    """`var = value` within `body`."""

    var: Var
    value: Expr
    body: Stmt
    NODE_FIELDS = ("var", "value", "body")


@dataclass(frozen=True, slots=True, eq=False)
class Evaluate(Stmt):
    """An expression for its effect (barriers, tensor intrinsics)."""

    value: Expr
    span: Span | None = None
    NODE_FIELDS = ("value",)


@dataclass(frozen=True, slots=True, eq=False)
class Allocate(Stmt):
    """Lowered TIR only: `buffer` exists within `body`."""

    buffer: Buffer
    body: Stmt
    NODE_FIELDS = ("buffer", "body")


@dataclass(frozen=True, slots=True, eq=False)
class IterVar(Node):
    """A block iterator over 0 .. extent. spatial: instances are independent; reduce: instances combine into one value;
    opaque: the order counts."""

    var: Var
    extent: Expr
    kind: str = "spatial"
    NODE_FIELDS = ("var", "extent")

    def __post_init__(self) -> None:
        object.__setattr__(self, "extent", const(self.extent))
        if self.kind not in ITER_KINDS:
            raise ValueError(f"unknown iterator kind {self.kind!r}; known: {', '.join(ITER_KINDS)}")


@dataclass(frozen=True, slots=True, eq=False)
class Block(Stmt):
    """A computation for one point of its iterators, and where that point stands in the loops around it.

    `bindings[i]` is the value of `iters[i]` in terms of outer loop variables; the block runs only where `predicate` holds.
    `reads` and `writes` are regions in terms of the iterators. `init` runs before `body` on the first step of the reduce
    iterators (all at 0). `allocs` are buffers that live within the block. The root block of a PrimFunc has no iterators.
    """

    name: str
    iters: tuple[IterVar, ...]
    bindings: tuple[Expr, ...]
    reads: tuple[Region, ...]
    writes: tuple[Region, ...]
    body: Stmt
    init: Stmt | None = None
    predicate: Expr = field(default=TRUE)
    allocs: tuple[Buffer, ...] = ()
    annotations: tuple[tuple[str, Any], ...] = ()
    span: Span | None = None
    NODE_FIELDS = ("bindings", "predicate", "iters", "reads", "writes", "allocs", "init", "body")

    def __post_init__(self) -> None:
        if len(self.iters) != len(self.bindings):
            raise ValueError(f"block {self.name!r} has {len(self.iters)} iterators and {len(self.bindings)} bindings")
        object.__setattr__(self, "bindings", tuple(as_expr(b) for b in self.bindings))

    def annotation(self, name: str, default: Any = None) -> Any:
        return dict(self.annotations).get(name, default)

    @property
    def is_reduction(self) -> bool:
        return any(i.kind == "reduce" for i in self.iters)


def seq(*stmts: Stmt | Iterable[Stmt]) -> Stmt:
    """One statement of many, flattened; a single one stays itself."""
    flat: list[Stmt] = []
    stack: list[Any] = list(reversed(stmts))
    while stack:
        item = stack.pop()
        if isinstance(item, Seq):
            stack.extend(reversed(item.stmts))
        elif isinstance(item, Stmt):
            flat.append(item)
        else:
            stack.extend(reversed(list(item)))
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def nest(loops: Sequence[tuple[Var, ExprLike]], body: Stmt) -> Stmt:
    """Serial loops around `body`, the first outermost."""
    for var, extent in reversed(loops):
        body = For(var, const(extent), body)
    return body


def blocks_of(root: Node) -> list[Block]:
    """Every block under `root`, outer before inner, in program order."""
    return [n for n in pre_order(root) if isinstance(n, Block)]


def with_annotation(pairs: tuple[tuple[str, Any], ...], name: str, value: Any) -> tuple[tuple[str, Any], ...]:
    """Sorted annotations with one set."""
    return tuple(sorted({**dict(pairs), name: value}.items()))
