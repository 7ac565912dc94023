"""Reductions and row fusion.

A reduction over a contiguous axis keeps one partial result a lane (rfactor); one over another axis runs vectors along the
contiguous output axis. Several blocks over the same rows (softmax, normalisations) run row by row, so that a row stays in
cache between them.
"""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.targets import Target
from everport.tir.expr import Var, as_int
from everport.tir.rules.analysis import is_elementwise, is_reduction, loads_of_block, points, stride_of, written
from everport.tir.rules.elementwise import PARALLEL_FROM, _vectorized
from everport.tir.schedule import Schedule
from everport.tir.schedule.scope import find_loop, is_intermediate, loops_above
from everport.tir.stmt import Block


def _reduce_loops(s: Schedule, name: str) -> list[Var]:
    block = s.get_block(name)
    reduces = [b for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce"]
    return [v for v in s.get_loops(name) if any(b is v for b in reduces)]


def schedule_reduction(s: Schedule, name: str, target: Target, rows: int = 0) -> None:
    """Schedules one reduction; its first `rows` loops are shared with other blocks and stay."""
    block = s.get_block(name)
    loops = s.get_loops(name)
    reduces = _reduce_loops(s, name)
    spatial = [v for v in loops[rows:] if v not in reduces]
    if not reduces:
        return
    lanes = target.lanes(max(4, written(block).dtype.itemsize))
    last = block.iters[-1]
    loads = loads_of_block(block)
    reduce_strides = [stride_of(n, last.var) for n in loads if n.buffer is not written(block)]
    contiguous = last.kind == "reduce" and all(st in (0, 1) for st in reduce_strides) and 1 in reduce_strides
    extent = as_int(find_loop(s.func, reduces[-1]).extent)
    if contiguous and (extent is None or extent >= 2 * lanes):
        try:
            _lanewise(s, name, reduces, lanes)
        except ScheduleError:
            pass
        else:
            return
    elif spatial and not contiguous:
        inner = spatial[-1]
        own = next((i for i, b in zip(block.iters, block.bindings, strict=True) if b is inner), None)
        size = as_int(find_loop(s.func, inner).extent)
        strides = [stride_of(n, own.var) for n in loads] if own is not None else [None]
        if all(st in (0, 1) for st in strides) and size is not None and size >= lanes and size % lanes == 0:
            outer, vector = s.split(inner, (None, lanes))
            rest = [v for v in s.get_loops(name)[rows:] if v not in (outer, vector, *reduces)]
            s.reorder(*rest, outer, *reduces, vector)
            init = s.decompose_reduction(name, reduces[0])
            s.vectorize(vector)
            init_loops = s.get_loops(init)
            if init_loops[-1] not in (outer, *rest):
                s.vectorize(init_loops[-1])
            _parallel_outer(s, name, rows, [*rest, outer], points(block))
            return
    if not spatial and not rows:
        return
    _parallel_outer(s, name, rows, spatial, points(block))


def _lanewise(s: Schedule, name: str, reduces: list[Var], lanes: int) -> None:
    """Partial results by lane: k -> (k_outer, k_lane), rfactor over k_lane, and vectors along it."""
    block = s.get_block(name)
    spatial_points = points(block)
    inner = reduces[-1]
    extent = as_int(find_loop(s.func, inner).extent)
    if extent is None or extent % lanes:
        raise ScheduleError("the extent does not divide into vectors")
    outer, lane = s.split(inner, (None, lanes))
    order = s.get_loops(name)
    count = block.writes[0].buffer.rank
    factored = s.rfactor(name, lane, count)
    loops = s.get_loops(factored)
    position = loops.index(lane)
    assert position == len(order) - 1
    first = next(v for v in loops if v in (*reduces[:-1], outer))
    rest = [v for v in loops[loops.index(first) :] if v is not lane]
    s.reorder(*rest, lane)
    init = s.decompose_reduction(factored, first)
    s.vectorize(lane)
    s.vectorize(s.get_loops(init)[-1])
    spatial = loops[: loops.index(first)]
    own = len([i for i in block.iters if i.kind == "spatial"])
    if spatial and own:
        try:
            s.reverse_compute_at(name, spatial[-1])
        except ScheduleError:
            pass  # the final sum keeps a nest of its own
    _parallel_outer(s, factored, 0, spatial, spatial_points)


def _parallel_outer(s: Schedule, name: str, rows: int, loops: list[Var], work: int | None) -> None:
    if rows or not loops or (work is not None and work < PARALLEL_FROM):
        return
    current = [f for f in loops_above(s.func, name)]
    leading: list[Var] = []
    for f in current:
        if f.var not in loops or f.kind != "serial":
            break
        leading.append(f.var)
    usable = leading
    while len(usable) > 1:
        try:
            fused = s.fuse(*usable)
        except ScheduleError:
            usable = usable[:-1]
            continue
        s.parallel(fused)
        return
    if usable:
        s.parallel(usable[0])


def fuse_rows(s: Schedule, done: set[str], target: Target) -> set[str]:
    """Runs groups of blocks over the same rows one row at a time; gives the names of the blocks it scheduled."""
    blocks = [b for b in s.blocks() if b.name not in done]
    reductions = [b for b in blocks if is_reduction(b)]
    if not reductions or len(blocks) < 2 or len(blocks) > 12:
        return set()
    last = blocks[-1]
    if not is_elementwise(last) or not all(is_elementwise(b) or is_reduction(b) for b in blocks):
        return set()
    rows = _common_rows(blocks, last)
    if rows <= 0 or len(s.get_loops(last.name)) < rows or any(not is_intermediate(s.func, written(b)) for b in blocks[:-1]):
        return set()
    saved, trace_length = s.func, len(s.trace.lines)
    row = s.get_loops(last.name)[rows - 1]
    try:
        for block in reversed(blocks[:-1]):
            s.compute_at(block.name, row)
    except ScheduleError:
        s.func = saved
        del s.trace.lines[trace_length:]
        return set()
    names = {b.name for b in blocks}
    for block in blocks:
        _inside_row(s, block, rows, target)
    outer = s.get_loops(last.name)[:rows]
    work = points(last)
    if work is None or work >= PARALLEL_FROM:
        try:
            s.parallel(s.fuse(*outer) if len(outer) > 1 else outer[0])
        except ScheduleError:
            return names
    return names


def _common_rows(blocks: list[Block], last: Block) -> int:
    """How many leading iterators of the last block all others write rows of: those that no reduction runs over."""
    rank = len(last.iters)
    rows = rank
    for block in blocks[:-1]:
        if is_reduction(block):
            kept = 0
            for it, own in zip(block.iters, last.iters, strict=False):
                if it.kind != "spatial" or not _same_extent(it.extent, own.extent):
                    break
                kept += 1
            rows = min(rows, kept)
    return min(rows, rank - 1)


def _same_extent(a: object, b: object) -> bool:
    return a is b


def _inside_row(s: Schedule, block: Block, rows: int, target: Target) -> None:
    """Vectors within a row."""
    loops = s.get_loops(block.name)[rows:]
    if not loops:
        return
    lanes = target.lanes(max(4, written(block).dtype.itemsize))
    extent = as_int(find_loop(s.func, loops[-1]).extent)
    if is_reduction(block):
        reduces = _reduce_loops(s, block.name)
        if reduces:
            _row_reduction(s, block.name, reduces, lanes, extent)
        return
    if extent is None or extent >= lanes:
        current = s.get_block(block.name)
        own = next((i.var for i, b in zip(current.iters, current.bindings, strict=True) if loops[-1] is b), None)
        if own is not None and all(stride_of(n, own) in (0, 1) for n in loads_of_block(current)):
            _vectorized(s, loops[-1], lanes)


def _row_reduction(s: Schedule, name: str, reduces: list[Var], lanes: int, extent: int | None) -> None:
    """A reduction within a row: partial results by lane where its extent divides."""
    if extent is None or extent % lanes or extent < 2 * lanes:
        return
    saved, length = s.func, len(s.trace.lines)
    try:
        outer, lane = s.split(reduces[-1], (None, lanes))
        count = s.get_block(name).writes[0].buffer.rank
        factored = s.rfactor(name, lane, count)
        loops = s.get_loops(factored)
        first = next(v for v in loops if v in (*reduces[:-1], outer))
        rest = [v for v in loops[loops.index(first) :] if v is not lane]
        s.reorder(*rest, lane)
        init = s.decompose_reduction(factored, first)
        s.vectorize(lane)
        s.vectorize(s.get_loops(init)[-1])
        row = loops[loops.index(first) - 1]
        if row not in s.get_loops(name):
            s.reverse_compute_at(name, row)
    except ScheduleError:
        s.func = saved
        del s.trace.lines[length:]
