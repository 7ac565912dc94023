"""compute_at and reverse_compute_at: moving a block under a loop of its consumers or its producer."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.tir.arith import Analyzer, eval_region, region_union
from everport.tir.buffer import Buffer, Range, Region
from everport.tir.expr import Const, Expr, Var, as_int, binary, free_vars, ge, lt, substitute
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import (
    analyzer_for,
    block_path,
    consumers_of,
    find_block,
    is_intermediate,
    loop_path,
    loops_in,
    outer_blocks,
    producers_of,
    replace,
    uses,
)
from everport.tir.stmt import TRUE, Block, For, Stmt, nest, seq


def _region_at(func: PrimFunc, blocks: list[Block], loop: For, buffer: Buffer, writes: bool) -> Region:
    """What blocks under `loop` read (or write) of a buffer in one step of the loop, in terms of the loops around."""
    total: Region | None = None
    analyzer = analyzer_for(func, loops_in(loop_path(func, loop.var)))
    for block in blocks:
        path = block_path(func, block.name)
        inner = [s for s in loops_in(path) if s is not loop and s not in loops_in(loop_path(func, loop.var))]
        for s in inner:
            analyzer.bind_extent(s.var, s.extent)
        mapping = {i.var: b for i, b in zip(block.iters, block.bindings, strict=True)}
        for region in block.writes if writes else block.reads:
            if region.buffer is not buffer:
                continue
            moved = Region(buffer, tuple(Range(substitute(r.min, mapping), substitute(r.extent, mapping)) for r in region.ranges))
            found = eval_region(moved, [s.var for s in inner], analyzer)
            total = found if total is None else region_union(total, found, analyzer)
    if total is None:
        raise ScheduleError(f"no block under loop {loop.var.name!r} uses {buffer.name!r}")
    return total


def _clipped(total: Region, analyzer: Analyzer) -> Region:
    """The region with constant extents where they are bounded, and never wider than the buffer."""
    ranges = []
    for r, full in zip(total.ranges, total.buffer.shape, strict=True):
        extent = analyzer.simplify(r.extent)
        bound = as_int(extent)
        if bound is None:
            bound = analyzer.bounds(extent)[1]
        whole = as_int(full)
        if bound is not None and (whole is None or bound < whole):
            ranges.append(Range(r.min, Const(bound)))
        elif bound is not None or whole is not None:
            ranges.append(Range(Const(0), full))
        elif free_vars(extent) and analyzer.can_prove(binary("<=", extent, full)):
            ranges.append(Range(r.min, extent))
        else:
            ranges.append(Range(Const(0), full))
    return Region(total.buffer, tuple(ranges))


def _placed(
    func: PrimFunc, block: Block, at: dict[Var, tuple[Expr, Expr]], analyzer: Analyzer
) -> Stmt:
    """The block under new loops: `at` gives (min, extent) for iterators; the others run over all of theirs."""
    loops: list[tuple[Var, Expr]] = []
    bindings: list[Expr] = []
    predicate: Expr = TRUE
    for it in block.iters:
        low, extent = at.get(it.var, (Const(0), it.extent))
        if as_int(extent) == 1:
            value: Expr = analyzer.simplify(low)
        else:
            v = Var(it.var.name if it.var.name[:1] != "v" else f"i{it.var.name[1:]}")
            loops.append((v, extent))
            analyzer.bind_extent(v, extent)
            value = analyzer.simplify(low + v)
        bindings.append(value)
        if not analyzer.can_prove(ge(value, 0)):  # what a guarded read asks for may lie outside
            predicate = binary("and", predicate, ge(value, 0))
        if not analyzer.can_prove(lt(value, it.extent)):
            predicate = binary("and", predicate, lt(value, it.extent))
    return nest(loops, block.with_fields(bindings=tuple(bindings), predicate=predicate))


def compute_at(func: PrimFunc, name: str, loop: Var) -> PrimFunc:
    """Moves a producer under a loop of its consumers, recomputing there what one step of the loop reads.

    All readers of what it writes must be under the loop, the block must write one intermediate at its own spatial iterators,
    and its inputs must be ready before the loop's body.
    """
    block = find_block(func, name)
    path = loop_path(func, loop)
    target = path[-1]
    assert isinstance(target, For)
    if any(b.name == name for b in outer_blocks(target)):
        raise ScheduleError(f"compute_at: block {name!r} is under loop {loop.name!r} already")
    if len(block.writes) != 1 or not is_intermediate(func, block.writes[0].buffer):
        raise ScheduleError(f"compute_at: block {name!r} must write one intermediate buffer")
    if any(i.kind == "opaque" for i in block.iters) or not block.iters:
        raise ScheduleError(f"compute_at: block {name!r} has opaque iterators")
    buffer = block.writes[0].buffer
    if len(producers_of(func, buffer)) != 1:
        raise ScheduleError(f"compute_at: {buffer.name!r} is written by several blocks")
    consumers = consumers_of(func, buffer)
    under = {b.name for b in outer_blocks(target)}
    outside = [c.name for c in consumers if c.name not in under]
    if outside or not consumers:
        raise ScheduleError(f"compute_at: {buffer.name!r} is read outside loop {loop.name!r}, by {', '.join(outside) or 'nobody'}")
    for read in block.reads:
        late = [p.name for p in producers_of(func, read.buffer) if p.name in under]
        if late:
            raise ScheduleError(f"compute_at: block {name!r} reads {read.buffer.name!r}, which {late[0]!r} makes under the loop")
    region = _region_at(func, consumers, target, buffer, writes=False)
    analyzer = analyzer_for(func, loops_in(path))
    region = _clipped(region, analyzer)
    at: dict[Var, tuple[Expr, Expr]] = {}
    for r, own in zip(region.ranges, block.writes[0].ranges, strict=True):
        if isinstance(own.min, Var):
            at[own.min] = (r.min, r.extent)
        elif as_int(own.min) is None:
            raise ScheduleError(f"compute_at: block {name!r} does not write {buffer.name!r} at its own iterators")
    nested = _placed(func, block, at, analyzer)
    new = target.with_fields(body=seq(nested, target.body))
    return replace(func, {id(target): new, id(block): None})


def reverse_compute_at(func: PrimFunc, name: str, loop: Var) -> PrimFunc:
    """Moves a consumer under a loop of its producer, right after it, for what one step of the loop has made.

    The loop may drive only spatial iterators of the producer; the consumer must read the producer's buffer at its own
    iterators; a reduce iterator of the consumer must run over all of its range within one step; and its other inputs must be
    ready.
    """
    block = find_block(func, name)
    path = loop_path(func, loop)
    target = path[-1]
    assert isinstance(target, For)
    under = outer_blocks(target)
    names = {b.name for b in under}
    if name in names:
        raise ScheduleError(f"reverse_compute_at: block {name!r} is under loop {loop.name!r} already")
    sources = [r for r in block.reads if any(p.name in names for p in producers_of(func, r.buffer))]
    if not sources:
        raise ScheduleError(f"reverse_compute_at: block {name!r} reads nothing that is made under loop {loop.name!r}")
    order = [b.name for b in outer_blocks(func.root.body)]
    last = max(order.index(n) for n in names)
    for read in block.reads:
        for p in producers_of(func, read.buffer):
            if p.name not in names and order.index(p.name) > last:
                raise ScheduleError(f"reverse_compute_at: {read.buffer.name!r} is made after loop {loop.name!r}, by {p.name!r}")
    around = [f.var for f in loops_in(path)]
    analyzer = analyzer_for(func, loops_in(path))
    at: dict[Var, tuple[Expr, Expr]] = {}
    for source in sources:
        producers = [p for p in under if any(w.buffer is source.buffer for w in p.writes)]
        if any(p.name not in names for p in producers_of(func, source.buffer)):
            raise ScheduleError(f"reverse_compute_at: {source.buffer.name!r} is also made outside loop {loop.name!r}")
        for p in producers:
            for it, binding in zip(p.iters, p.bindings, strict=True):
                if it.kind != "spatial" and uses(binding, around):
                    raise ScheduleError(f"reverse_compute_at: {p.name!r} is not complete under loop {loop.name!r}: it still reduces")
        region = _clipped(_region_at(func, producers, target, source.buffer, writes=True), analyzer)
        for r, own, full in zip(region.ranges, source.ranges, source.buffer.shape, strict=True):
            covers = analyzer.can_prove_equal(r.extent, full)
            if isinstance(own.min, Var) and own.min in {i.var for i in block.iters}:
                known = at.get(own.min)
                if known is not None and not (
                    analyzer.can_prove_equal(known[0], r.min) and analyzer.can_prove_equal(known[1], r.extent)
                ):
                    raise ScheduleError(f"reverse_compute_at: block {name!r} needs different parts of its inputs at one time")
                at[own.min] = (r.min, r.extent)
            elif not covers and not (as_int(own.min) is not None and as_int(full) == 1):
                raise ScheduleError(f"reverse_compute_at: block {name!r} does not read {source.buffer.name!r} at its own iterators")
    for it in block.iters:
        low, extent = at.get(it.var, (Const(0), it.extent))
        if it.kind == "reduce" and not (as_int(low) == 0 and analyzer.can_prove_equal(extent, it.extent)):
            raise ScheduleError(f"reverse_compute_at: block {name!r} reduces over {it.var.name!r}, of which a step has only a part")
        if it.kind == "opaque":
            raise ScheduleError(f"reverse_compute_at: block {name!r} has opaque iterators")
    if not any(uses(low, [loop]) for low, _ in at.values()) and as_int(target.extent) != 1 and block.init is not None:
        raise ScheduleError(f"reverse_compute_at: every step of {loop.name!r} would reduce the same elements of {name!r}")
    nested = _placed(func, block, at, analyzer)
    new = target.with_fields(body=seq(target.body, nested))
    return replace(func, {id(target): new, id(block): None})
