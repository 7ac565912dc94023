"""What rules ask of blocks: kinds, reuse, cost, contiguity."""

from __future__ import annotations

from everport.ir.node import pre_order, rewrite
from everport.tir.buffer import Buffer
from everport.tir.expr import Binary, Call, Const, Expr, Load, Select, Var, as_int, free_vars, substitute
from everport.tir.schedule import Schedule
from everport.tir.schedule.scope import is_intermediate, single_store
from everport.tir.stmt import Block, Store


def is_elementwise(block: Block) -> bool:
    """One store over spatial iterators, without init."""
    return single_store(block) is not None and block.init is None and all(i.kind == "spatial" for i in block.iters)


def is_reduction(block: Block) -> bool:
    """One accumulating store with an init."""
    return single_store(block) is not None and isinstance(block.init, Store) and block.is_reduction


def is_contraction(block: Block) -> bool:
    """A sum of products in which some operand is used again by another output (matmul, convolution)."""
    store = single_store(block)
    if store is None or not is_reduction(block) or not isinstance(store.value, Binary) or store.value.op != "+":
        return False
    term = store.value.b
    loads = [n for n in pre_order(term) if isinstance(n, Load)]
    products = any(isinstance(n, Binary) and n.op == "*" for n in pre_order(term))
    return products and len({n.buffer for n in loads}) >= 2 and bool(_reused_iters(block, loads))


def _reused_iters(block: Block, loads: list[Load]) -> list[Var]:
    """Spatial iterators that some load does not depend on."""
    spatial = [i.var for i in block.iters if i.kind == "spatial"]
    return [v for v in spatial if any(all(not _uses(e, v) for e in n.indices) for n in loads)]


def _uses(e: Expr, v: Var) -> bool:
    return v in free_vars(e)


def is_costly(e: Expr) -> bool:
    """Holds something worth keeping instead of computing again: a math call, a division, or a bounds check."""
    return any(
        (isinstance(n, Call) and n.name not in ("abs", "fma", "isnan"))
        or isinstance(n, Select)
        or (isinstance(n, Binary) and n.op == "/")
        for n in pre_order(e)
    )


def stride_of(load: Load, v: Var) -> int | None:
    """By how many elements a load moves when `v` grows by one, where that is a constant; the last dimension only counts as
    contiguous, so a step in an earlier dimension of a larger extent gives None."""
    step = 0
    for position, e in enumerate(load.indices):
        if not _uses(e, v):
            continue
        if position != len(load.indices) - 1:
            return None
        a, b = substitute(e, {v: Const(0)}), substitute(e, {v: Const(1)})
        difference = as_int(b - a)
        if difference is None:
            from_affine = _affine_step(e, v)
            if from_affine is None:
                return None
            difference = from_affine
        step += difference
    return step


def _affine_step(e: Expr, v: Var) -> int | None:
    """The coefficient of v in sums and constant multiples."""
    if e is v:
        return 1
    if not _uses(e, v):
        return 0
    if isinstance(e, Binary) and e.op in ("+", "-"):
        a, b = _affine_step(e.a, v), _affine_step(e.b, v)
        if a is None or b is None:
            return None
        return a + b if e.op == "+" else a - b
    if isinstance(e, Binary) and e.op == "*" and as_int(e.b) is not None:
        a = _affine_step(e.a, v)
        return None if a is None else a * int(as_int(e.b) or 0)
    return None


def loads_of_block(block: Block) -> list[Load]:
    return [n for n in pre_order(block.body) if isinstance(n, Load)]


def points(block: Block) -> int | None:
    """The number of instances of a block, where constant."""
    total = 1
    for i in block.iters:
        extent = as_int(i.extent)
        if extent is None:
            return None
        total *= extent
    return total


def written(block: Block) -> Buffer:
    return block.writes[0].buffer


def same_shape_access(block: Block) -> bool:
    """True if every access is at the block's own iterators in order, on buffers of one shape: the loops can be one."""
    store = single_store(block)
    if store is None or len(block.iters) < 2:
        return False
    own = tuple(i.var for i in block.iters)
    extents = [i.extent for i in block.iters]
    for indices, buffer in [(store.indices, store.buffer), *((n.indices, n.buffer) for n in loads_of_block(block))]:
        if all(as_int(d) == 1 for d in buffer.shape):
            continue
        if tuple(indices) != own or any(a is not b for a, b in zip(buffer.shape, extents, strict=True)):
            return False
    return not any(v in free_vars(_without_loads(store.value)) for v in own)


def _without_loads(e: Expr) -> Expr:
    return rewrite(e, lambda n: Const(0, n.dtype) if isinstance(n, Load) else None, pre=lambda n: n if isinstance(n, Buffer) else None)


def intermediates_first(s: Schedule) -> list[Block]:
    """Blocks that write intermediates, in program order."""
    return [b for b in s.blocks() if b.writes and is_intermediate(s.func, written(b))]
