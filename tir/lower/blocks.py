"""lower_blocks: blocks become plain statements over loop variables."""

from __future__ import annotations

from everport.ir.node import Node, pre_order, rewrite
from everport.tir.arith import Analyzer
from everport.tir.expr import Const, Expr, Var, as_int, eq, free_vars, ge, logical_and, substitute
from everport.tir.func import PrimFunc
from everport.tir.stmt import Allocate, Block, For, If, Stmt, seq


def lower_blocks(func: PrimFunc) -> PrimFunc:
    """Replaces each block by its body with the bindings in place of the iterators, under its predicate.

    An init that was not decomposed runs where every reduce iterator is 0. The allocations of inner blocks become Allocate
    statements; those of the root block stay in an outer Allocate chain for place_buffers.
    """

    def lowered(node: Node) -> Node | None:
        return _plain(node) if isinstance(node, Block) else None

    body = rewrite(func.body, lowered)
    return func.with_fields(body=body)


def _plain(block: Block) -> Stmt:
    mapping = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
    body = substitute(block.body, mapping)
    if block.init is not None:
        firsts: list[Expr] = [
            eq(b, 0) for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce" and not isinstance(b, Const)
        ]
        init = substitute(block.init, mapping)
        body = seq(If(logical_and(*firsts), init) if firsts else init, body)
    for buffer in reversed(block.allocs):
        body = Allocate(buffer, body)
    if not (isinstance(block.predicate, Const) and block.predicate.value):
        body = If(substitute(block.predicate, mapping), body)
    return body


def within_loop(analyzer: Analyzer, loop: For) -> Analyzer:
    """What is known in the body of a loop: the bounds of its variable, and that its extent is at least 1."""
    if as_int(loop.extent) is None:
        analyzer = analyzer.copy()
        analyzer.assume(ge(loop.extent, 1))
    analyzer.bind_extent(loop.var, loop.extent)
    return analyzer


def shape_analyzer(func: PrimFunc) -> Analyzer:
    """An analyzer that knows extents to be non-negative: every shape symbol of the buffers is at least 0."""
    analyzer = Analyzer()
    for symbol in free_vars([s for b in func.buffers for s in b.shape]):
        analyzer.bind(symbol, 0, None)
    return analyzer


class LoopScopes:
    """Analyzers by the loops they stand in, made on demand."""

    def __init__(self, base: Analyzer, body: Stmt) -> None:
        for s in pre_order(body):
            if isinstance(s, For):
                base.bind_extent(s.var, s.extent)
        self.base = base
        self.by_loops: dict[tuple[Var, ...], Analyzer] = {}

    def within(self, path: tuple[Stmt, ...]) -> Analyzer:
        """What is known in the body of the innermost loop of a path."""
        analyzer, key = self.base, tuple[Var, ...]()
        for s in path:
            if isinstance(s, For) and as_int(s.extent) is None:
                key = (*key, s.var)
                if key not in self.by_loops:
                    self.by_loops[key] = within_loop(analyzer, s)
                analyzer = self.by_loops[key]
        return analyzer
