"""compute_inline and reverse_compute_inline."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.ir.node import Node, rewrite
from everport.tir.buffer import Buffer
from everport.tir.expr import Expr, Load, Var, as_int, refold, substitute
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import (
    consumers_of,
    find_block,
    is_intermediate,
    producers_of,
    replace,
    single_store,
    with_reads,
)
from everport.tir.stmt import Block, Store


def injective_store(func: PrimFunc, block: Block, what: str) -> Store:
    """The store of a block that computes each element of a buffer once from its iterators; a ScheduleError says why not."""
    store = single_store(block)
    if store is None or block.init is not None or any(i.kind != "spatial" for i in block.iters):
        raise ScheduleError(f"{what}: block {block.name!r} is not one store over spatial iterators")
    variables = [i.var for i in block.iters]
    used = [i for i in store.indices if isinstance(i, Var)]
    others = [(i, d) for i, d in zip(store.indices, store.buffer.shape, strict=True) if not isinstance(i, Var)]
    if len(set(used)) != len(used) or set(used) != set(variables) or any(as_int(i) != 0 or as_int(d) != 1 for i, d in others):
        raise ScheduleError(f"{what}: block {block.name!r} does not write {store.buffer.name!r} at its own iterators")
    return store


def compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """B[i] = f(i); C[j] = g(B[h(j)])  ->  C[j] = g(f(h(j))) in every consumer; B disappears.

    B must be an intermediate that this block alone writes, each element once.
    """
    block = find_block(func, name)
    store = injective_store(func, block, "compute_inline")
    buffer = store.buffer
    if not is_intermediate(func, buffer):
        raise ScheduleError(f"compute_inline: {buffer.name!r} is a parameter of the function")
    if len(producers_of(func, buffer)) != 1:
        raise ScheduleError(f"compute_inline: {buffer.name!r} is written by several blocks")
    consumers = [b for b in consumers_of(func, buffer) if b is not block]

    def value_at(indices: tuple[Expr, ...]) -> Expr:
        mapping = {own: at for own, at in zip(store.indices, indices, strict=True) if isinstance(own, Var)}
        return substitute(store.value, mapping)

    def change(node: Node) -> Node | None:
        if isinstance(node, Load) and node.buffer is buffer:
            return value_at(node.indices)
        return refold(node)

    changes: dict[int, object] = {}
    for consumer in consumers:
        body = rewrite(consumer.body, change, pre=lambda n: n if isinstance(n, Buffer) else None)
        changes[id(consumer)] = with_reads(consumer.with_fields(body=body))
    changes[id(block)] = None
    func = replace(func, changes)  # type: ignore[arg-type]
    return drop_buffer(func, buffer)


def reverse_compute_inline(func: PrimFunc, name: str) -> PrimFunc:
    """B[i] = f(i); C[i] = g(B[i])  ->  C[i] = g(f(i)) in the producer's place; B disappears.

    The producer must be one store over spatial iterators, and the consumer (this block) its only reader, reading B at its own
    iterators and covering all of it.
    """
    consumer = find_block(func, name)
    store = injective_store(func, consumer, "reverse_compute_inline")
    sources = [r.buffer for r in consumer.reads if is_intermediate(func, r.buffer) and producers_of(func, r.buffer)]
    for buffer in sources:
        producers = producers_of(func, buffer)
        if len(producers) != 1 or len(consumers_of(func, buffer)) != 1:
            continue
        try:
            made = injective_store(func, producers[0], "reverse_compute_inline")
        except ScheduleError:
            continue
        loads = {n for n in _loads(store.value, buffer)}
        if len(loads) != 1:
            continue
        load = next(iter(loads))
        places = [i for i in load.indices if isinstance(i, Var)]
        if len(places) != len(consumer.iters) or len(set(places)) != len(places):
            continue
        if any(not isinstance(i, Var) and as_int(i) != 0 for i in load.indices):
            continue
        mapping = {own: at for own, at in zip(load.indices, made.indices, strict=True) if isinstance(own, Var)}
        if any(m not in mapping for m in (i.var for i in consumer.iters)):
            continue
        value = rewrite(
            substitute(store.value, mapping),
            lambda n: made.value if isinstance(n, Load) and n.buffer is buffer else refold(n),
            pre=lambda n: n if isinstance(n, Buffer) else None,
        )
        body = Store(store.buffer, tuple(substitute(i, mapping) for i in store.indices), value, None, store.span)
        writes = tuple(rewrite(w, lambda n: mapping.get(n) if isinstance(n, Var) else None) for w in consumer.writes)  # type: ignore[misc]
        merged = with_reads(producers[0].with_fields(body=body, writes=writes))
        func = replace(func, {id(producers[0]): merged, id(consumer): None})
        return drop_buffer(func, buffer)
    raise ScheduleError(f"reverse_compute_inline: block {name!r} reads no buffer that one spatial block makes for it alone")


def _loads(e: Expr, buffer: Buffer) -> list[Load]:
    found: list[Load] = []
    rewrite(e, lambda n: found.append(n) if isinstance(n, Load) and n.buffer is buffer else None, pre=lambda n: n if isinstance(n, Buffer) else None)  # type: ignore[func-returns-value]
    return found


def drop_buffer(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    """Removes an intermediate from the root's allocations."""
    root = func.root
    return func.with_fields(body=root.with_fields(allocs=tuple(b for b in root.allocs if b is not buffer)))


