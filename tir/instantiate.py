"""Copies of a PrimFunc's body with fresh names: what merging functions needs."""

from __future__ import annotations

from collections.abc import Mapping

from everport.ir.node import Node, post_order, rewrite
from everport.tir.buffer import Buffer, Region
from everport.tir.expr import Expr, Load, Var, refold
from everport.tir.func import PrimFunc
from everport.tir.stmt import Allocate, Block, For, IterVar, Let, Store, seq


def instantiate(func: PrimFunc, buffers: Mapping[Buffer, Buffer], scalars: Mapping[Var, Expr]) -> Block:
    """The root block of `func` on other buffers and scalar values. Loop variables, iterators and intermediate buffers are
    new objects; block names stay."""
    values: dict[Var, Expr] = dict(scalars)
    for node in post_order(func.body):
        if isinstance(node, (For, Let, IterVar)):
            values[node.var] = Var(node.var.name, node.var.dtype)
    places: dict[Buffer, Buffer] = dict(buffers)

    def expression(node: Node) -> Node | None:
        if isinstance(node, Var):
            return values.get(node)
        if isinstance(node, Load):
            return Load(place(node.buffer), node.indices)
        return refold(node)

    def place(buffer: Buffer) -> Buffer:
        if buffer not in places:
            shape = tuple(rewrite(s, expression) for s in buffer.shape)
            places[buffer] = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, buffer.align)
        return places[buffer]

    def change(node: Node) -> Node | None:
        if isinstance(node, Expr):
            return expression(node)
        if isinstance(node, (Store, Region, Allocate)):
            node = node.with_fields(buffer=place(node.buffer))
        if isinstance(node, Block):
            node = node.with_fields(allocs=tuple(place(b) for b in node.allocs))
        return node

    return rewrite(func.root, change, pre=lambda n: n if isinstance(n, Buffer) else None)


def merge_blocks(name: str, parts: list[Block]) -> Block:
    """One root block of several, in order; block names are made unique."""
    from_parts: list[Block] = []
    used: set[str] = {name}
    for part in parts:
        renames: dict[str, str] = {}

        def unique(node: Node, renames: dict[str, str] = renames) -> Node | None:
            if not isinstance(node, Block) or (not node.iters and node.name == "root"):
                return None
            if node.name not in renames:
                candidate, number = node.name, 1
                while candidate in used:
                    candidate, number = f"{node.name}_{number}", number + 1
                used.add(candidate)
                renames[node.name] = candidate
            return node.with_fields(name=renames[node.name])

        from_parts.append(rewrite(part, unique, pre=lambda n: n if isinstance(n, (Expr, Buffer)) else None))
    allocs = tuple(b for p in from_parts for b in p.allocs)
    return Block(name, (), (), (), (), seq([p.body for p in from_parts]), allocs=allocs)
