"""FuncBuilder: writes PrimFuncs as a list of computed buffers, each one block under its own loops.

b = FuncBuilder("row_sum")
x = b.input("x", (n, 64), f32)
total = b.reduce("total", (n,), (64,), f32, "sum", lambda i, k: x[i, k])
b.output(b.compute("y", (n, 64), f32, lambda i, j: x[i, j] / total[i]))
func = b.finish()
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from everport.ir.dtype import DType
from everport.ir.node import pre_order
from everport.ir.span import Span
from everport.tir.buffer import Buffer, Range, Region, full_region, point_region
from everport.tir.expr import Const, Expr, ExprLike, Load, Var, as_expr, binary, const, free_vars
from everport.tir.func import PrimFunc
from everport.tir.stmt import Block, IterVar, Stmt, Store, nest, seq


def reduce_identity(kind: str, dtype: DType) -> Const:
    """The start value of a reduction: sum 0, prod 1, max the lowest and min the highest value (infinite for floats)."""
    match kind:
        case "sum" | "or":
            return Const(0, dtype)
        case "prod" | "and":
            return Const(1, dtype)
        case "max":
            return Const(-math.inf if dtype.is_float else dtype.min_value, dtype)
        case "min":
            return Const(math.inf if dtype.is_float else dtype.max_value, dtype)
    raise ValueError(f"unknown reduction {kind!r}; known: sum, prod, max, min, and, or")


def combine(kind: str, a: Expr, b: Expr) -> Expr:
    """One step of a reduction."""
    return binary({"sum": "+", "prod": "*", "max": "max", "min": "min", "and": "and", "or": "or"}[kind], a, b)


def loaded_regions(nodes: Iterable[Stmt | Expr], inside: Sequence[Var] = ()) -> tuple[Region, ...]:
    """What the nodes read: point regions where one access names each buffer, the whole buffer where an index holds a load
    or a variable of `inside` (a loop within the block)."""
    local = set(inside)
    seen: dict[Buffer, Region] = {}
    for root in nodes:
        for node in pre_order(root):
            if not isinstance(node, Load):
                continue
            plain = not any(
                isinstance(part, Load) or part in local for index in node.indices for part in pre_order(index)
            )
            region = point_region(node.buffer, node.indices) if plain else full_region(node.buffer)
            known = seen.get(node.buffer)
            if known is None:
                seen[node.buffer] = region
            elif tuple(r.min for r in known.ranges) != tuple(r.min for r in region.ranges):
                seen[node.buffer] = full_region(node.buffer)
    return tuple(seen.values())


class FuncBuilder:
    """Collects inputs, computed buffers and outputs, and makes the PrimFunc. Names are made unique."""

    def __init__(self, name: str, *, kind: str | None = None, span: Span | None = None) -> None:
        self.name = name
        self.kind = kind
        self.span = span
        self.inputs: list[Buffer] = []
        self.outputs: list[Buffer] = []
        self.intermediates: list[Buffer] = []
        self.stmts: list[Stmt] = []
        self.scalars: list[Var] = []
        self._names: set[str] = set()

    def unique(self, name: str) -> str:
        """`name`, or with a number appended if taken."""
        candidate, number = name, 1
        while candidate in self._names:
            candidate, number = f"{name}_{number}", number + 1
        self._names.add(candidate)
        return candidate

    def input(self, name: str, shape: Sequence[ExprLike], dtype: DType) -> Buffer:
        buffer = Buffer(self.unique(name), tuple(const(s) for s in shape), dtype)
        self.inputs.append(buffer)
        return buffer

    def scalar(self, name: str, dtype: DType) -> Var:
        """A scalar parameter that no shape names (shape symbols become parameters by themselves)."""
        var = Var(self.unique(name), dtype)
        self.scalars.append(var)
        return var

    def buffer(self, name: str, shape: Sequence[ExprLike], dtype: DType) -> Buffer:
        """An intermediate buffer to be written by `block`."""
        buffer = Buffer(self.unique(name), tuple(const(s) for s in shape), dtype)
        self.intermediates.append(buffer)
        return buffer

    def output(self, buffer: Buffer) -> Buffer:
        """Makes a computed buffer an output (outputs keep their order)."""
        if buffer not in self.intermediates:
            raise ValueError(f"{buffer.name!r} is not a buffer computed here, or is an output already")
        self.intermediates.remove(buffer)
        self.outputs.append(buffer)
        return buffer

    def compute(
        self, name: str, shape: Sequence[ExprLike], dtype: DType, value: Callable[..., ExprLike], **annotations: Any
    ) -> Buffer:
        """A buffer of `shape` with `value(*indices)` at every index; one spatial block."""
        target = self.buffer(name, shape, dtype)
        iters = [IterVar(Var(f"v{k}"), s) for k, s in enumerate(target.shape)]
        indices = tuple(i.var for i in iters)
        result = value(*indices)
        expr = result if isinstance(result, Expr) else Const(result, dtype)
        self._add(target, iters, Store(target, indices, expr), None, annotations)
        return target

    def reduce(
        self,
        name: str,
        shape: Sequence[ExprLike],
        axes: Sequence[ExprLike],
        dtype: DType,
        kind: str,
        value: Callable[..., Expr],
        init: ExprLike | None = None,
        **annotations: Any,
    ) -> Buffer:
        """A buffer of `shape` where element `s` is the `kind` (sum, prod, max, min, and, or) over `axes` of
        `value(*s, *r)`; one block with spatial and reduce iterators. `init` replaces the identity."""
        target = self.buffer(name, shape, dtype)
        iters = [IterVar(Var(f"v{k}"), s) for k, s in enumerate(target.shape)]
        iters += [IterVar(Var(f"r{k}"), s, "reduce") for k, s in enumerate(axes)]
        indices = tuple(i.var for i in iters[: target.rank])
        start = reduce_identity(kind, dtype) if init is None else as_expr(init, Const(0, dtype))
        step = combine(kind, target[indices], value(*(i.var for i in iters)))
        self._add(target, iters, Store(target, indices, step), Store(target, indices, start), annotations)
        return target

    def block(
        self,
        name: str,
        iters: Sequence[tuple[str, ExprLike, str]],
        writes: Sequence[Buffer],
        body: Callable[..., Stmt],
        reads: Sequence[Buffer] = (),
        init: Callable[..., Stmt] | None = None,
        allocs: Sequence[Buffer] = (),
        **annotations: Any,
    ) -> None:
        """A hand-written block: `iters` are (name, extent, kind); `body(*iterators)` returns its statement (its own loops,
        conditions and stores allowed). Regions are the whole of `reads` and `writes`: an opaque block that schedules keep."""
        made = [IterVar(Var(n), const(extent), kind) for n, extent, kind in iters]
        variables = [i.var for i in made]
        loops = [Var(f"i{k}") for k in range(len(made))]
        block = Block(
            self.unique(name),
            tuple(made),
            tuple(loops),
            tuple(full_region(b) for b in reads),
            tuple(full_region(b) for b in writes),
            body(*variables),
            init(*variables) if init is not None else None,
            allocs=tuple(allocs),
            annotations=tuple(sorted(annotations.items())),
            span=self.span,
        )
        self.stmts.append(nest([(v, i.extent) for v, i in zip(loops, made, strict=True)], block))

    def _add(
        self, target: Buffer, iters: list[IterVar], store: Store, init: Store | None, notes: dict[str, Any]
    ) -> None:
        loops = [Var(f"i{k}") for k in range(len(iters))]
        # A reduction's read of its own accumulator is implied by its init.
        reads = tuple(r for r in loaded_regions([store.value]) if init is None or r.buffer is not target)
        block = Block(
            target.name,
            tuple(iters),
            tuple(loops),
            reads,
            (Region(target, tuple(Range(i, Const(1)) for i in store.indices)),),
            store,
            init,
            annotations=tuple(sorted(notes.items())),
            span=self.span,
        )
        self.stmts.append(nest([(v, i.extent) for v, i in zip(loops, iters, strict=True)], block))

    def finish(self, scalars: Sequence[Var] | None = None) -> PrimFunc:
        """The PrimFunc; free variables that are no loop or iterator become scalar parameters (or `scalars`, in that order)."""
        buffers = (*self.inputs, *self.outputs)
        root = Block("root", (), (), (), (), seq(self.stmts), allocs=tuple(self.intermediates), span=self.span)
        if scalars is None:
            bound: set[Var] = set()
            for node in pre_order(root):
                if isinstance(node, Block):
                    bound.update(i.var for i in node.iters)
                elif hasattr(node, "var") and not isinstance(node, IterVar):
                    bound.add(node.var)
            shapes = [s for b in buffers for s in b.shape]
            free = [v for v in free_vars([*shapes, root]) if v not in bound and v not in self.scalars]
            scalars = [*free, *self.scalars]
        attrs: dict[str, Any] = {"num_outputs": len(self.outputs)}
        if self.kind is not None:
            attrs["kind"] = self.kind
        return PrimFunc(self.name, (*buffers, *scalars), root, tuple(sorted(attrs.items())), self.span)
