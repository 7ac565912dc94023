"""The verifiers of TIR: one table of rules for scheduled functions, one for lowered (device) ones."""

from __future__ import annotations

from collections.abc import Iterator

from everport.ir.node import post_order, pre_order
from everport.ir.rules import CheckRule, check_rules
from everport.tir.buffer import Buffer
from everport.tir.expr import Broadcast, Const, Expr, Load, Ramp, Var, as_int, free_vars
from everport.tir.func import PrimFunc
from everport.tir.stmt import Allocate, Block, For, If, IterVar, Let, Seq, Stmt, Store, While

Breach = tuple[str, object]


def verify(func: PrimFunc) -> None:
    """Checks a function by the table of its stage; a VerifyError lists the breaches."""
    device = func.attr("stage") == "device"
    check_rules(func, DEVICE_RULES if device else SCHEDULED_RULES, f"PrimFunc {func.name!r}")


def _accesses(func: PrimFunc) -> Iterator[Load | Store]:
    for node in post_order(func.body):
        if isinstance(node, (Load, Store)):
            yield node


def _ranks(func: PrimFunc) -> Iterator[Breach]:
    for a in _accesses(func):
        if len(a.indices) != a.buffer.rank:
            yield f"{a.buffer.name!r} of rank {a.buffer.rank} is accessed with {len(a.indices)} indices", a
        for i in a.indices:
            if not i.dtype.is_int:
                yield f"an index of {a.buffer.name!r} is {i.dtype}: {i}", a


def _buffers_known(func: PrimFunc) -> Iterator[Breach]:
    known = set(func.buffers)
    for node in pre_order(func.body):
        if isinstance(node, Block):
            known.update(node.allocs)
        elif isinstance(node, Allocate):
            known.add(node.buffer)
    for a in _accesses(func):
        if a.buffer not in known:
            yield f"{a.buffer.name!r} is neither a parameter nor allocated", a


def _defined(func: PrimFunc) -> Iterator[Breach]:
    """Variables are used only where they are defined, and defined once."""
    ever: set[Var] = set()
    stack: list[tuple[Stmt, frozenset[Var]]] = [(func.body, frozenset(func.scalars))]

    def free(e: Expr, known: frozenset[Var], where: object) -> Iterator[Breach]:
        for v in free_vars(e):
            if v not in known:
                yield f"{v.name!r} is used where it is not defined", where

    while stack:
        s, known = stack.pop()
        match s:
            case Seq():
                stack.extend((p, known) for p in s.stmts)
            case For():
                yield from free(s.extent, known, s)
                if s.var in ever:
                    yield f"loop variable {s.var.name!r} is defined twice", s
                ever.add(s.var)
                stack.append((s.body, known | {s.var}))
            case If():
                yield from free(s.cond, known, s)
                stack.append((s.then, known))
                if s.otherwise is not None:
                    stack.append((s.otherwise, known))
            case While():
                yield from free(s.cond, known, s)
                stack.append((s.body, known))
            case Let():
                yield from free(s.value, known, s)
                stack.append((s.body, known | {s.var}))
            case Allocate():
                stack.append((s.body, known))
            case Store():
                for e in (*s.indices, s.value, *([] if s.mask is None else [s.mask])):
                    yield from free(e, known, s)
            case Block():
                for e in (*s.bindings, s.predicate):
                    yield from free(e, known, s)
                inner = known | {i.var for i in s.iters}
                for r in (*s.reads, *s.writes):
                    for x in r.ranges:
                        yield from free(x.min, inner, s)
                if s.init is not None:
                    stack.append((s.init, inner))
                stack.append((s.body, inner))


def _blocks(func: PrimFunc) -> Iterator[Breach]:
    names: set[str] = set()
    for b in (n for n in pre_order(func.body) if isinstance(n, Block)):
        if b.name in names:
            yield f"two blocks are called {b.name!r}", b
        names.add(b.name)
        for binding in b.bindings:
            if binding.dtype.name != "i64" or binding.lanes != 1:
                yield f"a binding of block {b.name!r} is {binding.dtype} x {binding.lanes}", b
        declared = {r.buffer for r in (*b.reads, *b.writes)} | set(b.allocs)
        if b.iters:
            for node in pre_order(b.body):
                if isinstance(node, Load) and node.buffer not in declared:
                    yield f"block {b.name!r} reads {node.buffer.name!r}, which its signature leaves out", b
                if isinstance(node, Store) and node.buffer not in {w.buffer for w in b.writes} | set(b.allocs):
                    yield f"block {b.name!r} writes {node.buffer.name!r}, which its signature leaves out", b


def _parallel(func: PrimFunc) -> Iterator[Breach]:
    """Parallel and vectorized loops drive no reduce or opaque iterator."""
    for loop in (n for n in pre_order(func.body) if isinstance(n, For)):
        if loop.kind not in ("parallel", "vectorized", "thread"):
            continue
        for b in (n for n in pre_order(loop.body) if isinstance(n, Block)):
            for it, binding in zip(b.iters, b.bindings, strict=True):
                if it.kind != "spatial" and loop.var in free_vars(binding):
                    yield f"the {loop.kind} loop {loop.var.name!r} drives the {it.kind} iterator {it.var.name!r} of {b.name!r}", b


def _lanes(func: PrimFunc) -> Iterator[Breach]:
    for node in post_order(func.body):
        if isinstance(node, Expr) and node.lanes != 1:
            yield f"a vector expression before lowering: {node}", node
            return


def _no_blocks(func: PrimFunc) -> Iterator[Breach]:
    for node in pre_order(func.body):
        if isinstance(node, (Block, IterVar)):
            yield "a block is left after lowering", node


def _flat(func: PrimFunc) -> Iterator[Breach]:
    for node in post_order(func):
        if isinstance(node, Buffer) and node.rank != 1:
            yield f"buffer {node.name!r} has {node.rank} dimensions after lowering", node


def _vectors(func: PrimFunc) -> Iterator[Breach]:
    for node in pre_order(func.body):
        if isinstance(node, For) and node.kind in ("vectorized", "unrolled"):
            yield f"loop {node.var.name!r} is still {node.kind}", node
        if isinstance(node, Store):
            lanes = max(node.value.lanes, node.indices[0].lanes)
            for part in (node.value, node.mask):
                if part is not None and part.lanes not in (1, lanes):
                    yield f"a store into {node.buffer.name!r} mixes {part.lanes} and {lanes} lanes", node
        if isinstance(node, (Ramp, Broadcast)) and node.lanes < 2:
            yield f"a vector of {node.lanes} lanes: {node}", node


def _local_sizes(func: PrimFunc) -> Iterator[Breach]:
    for node in pre_order(func.body):
        if isinstance(node, Allocate) and any(as_int(s) is None for s in node.buffer.shape):
            yield f"local buffer {node.buffer.name!r} has no constant size", node


def _conditions(func: PrimFunc) -> Iterator[Breach]:
    for node in pre_order(func.body):
        if isinstance(node, (If, While)) and (not node.cond.dtype.is_bool or node.cond.lanes != 1):
            yield f"a condition is {node.cond.dtype} x {node.cond.lanes}: {node.cond}", node
        if isinstance(node, For) and isinstance(node.extent, Const) and node.extent.value < 0:
            yield f"loop {node.var.name!r} has the extent {node.extent}", node


SCHEDULED_RULES: tuple[CheckRule[PrimFunc], ...] = (
    CheckRule("index ranks and types", _ranks),
    CheckRule("buffers are known", _buffers_known),
    CheckRule("variables are defined", _defined),
    CheckRule("block signatures", _blocks),
    CheckRule("parallel loops are spatial", _parallel),
    CheckRule("scalar expressions", _lanes),
    CheckRule("conditions and extents", _conditions),
)
DEVICE_RULES: tuple[CheckRule[PrimFunc], ...] = (
    CheckRule("index ranks and types", _ranks),
    CheckRule("buffers are known", _buffers_known),
    CheckRule("variables are defined", _defined),
    CheckRule("no blocks", _no_blocks),
    CheckRule("flat buffers", _flat),
    CheckRule("vectors", _vectors),
    CheckRule("constant local sizes", _local_sizes),
    CheckRule("conditions and extents", _conditions),
)
