"""transform_layout: a buffer's elements in another order."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.ir.node import Node, rewrite
from everport.tir.arith import IndexMap, IterMapError
from everport.tir.buffer import Buffer, Range, Region, full_region
from everport.tir.expr import Load, as_int, refold
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import analyzer_for
from everport.tir.stmt import Block, Store


def transform_layout(func: PrimFunc, buffer_name: str, index_map: IndexMap) -> PrimFunc:
    """Every access B[i] becomes B'[map(i)]. B is an intermediate; the map is bijective on its shape (no padding)."""
    found = [b for b in func.root.allocs if b.name == buffer_name]
    if not found:
        names = ", ".join(b.name for b in func.root.allocs)
        raise ScheduleError(
            f"transform_layout: {buffer_name!r} is no intermediate buffer", hint=f"intermediates: {names or 'none'}"
        )
    buffer = found[0]
    if len(index_map.initial) != buffer.rank:
        raise ScheduleError(f"transform_layout: the map takes {len(index_map.initial)} indices, {buffer_name!r} has {buffer.rank}")
    try:
        shape = index_map.map_shape(buffer.shape)
    except IterMapError as error:
        raise ScheduleError(f"transform_layout: the map is not bijective on {buffer}: {error.message}") from None
    new = Buffer(buffer.name, shape, buffer.dtype, buffer.scope, buffer.align)
    analyzer = analyzer_for(func, [])

    def change(node: Node) -> Node | None:
        if isinstance(node, Load) and node.buffer is buffer:
            return Load(new, index_map.map_indices(node.indices, analyzer))
        if isinstance(node, Store) and node.buffer is buffer:
            return node.with_fields(buffer=new, indices=index_map.map_indices(node.indices, analyzer))
        if isinstance(node, Region) and node.buffer is buffer:
            if all(as_int(r.extent) == 1 for r in node.ranges):
                places = index_map.map_indices([r.min for r in node.ranges], analyzer)
                return Region(new, tuple(Range(p, node.ranges[0].extent) for p in places))
            return full_region(new)
        return refold(node)

    root = rewrite(func.root, change, pre=lambda n: n if isinstance(n, Buffer) else None)
    assert isinstance(root, Block)
    return func.with_fields(body=root.with_fields(allocs=tuple(new if b is buffer else b for b in root.allocs)))
