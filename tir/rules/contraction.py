"""Contractions (matmul, convolution): register tiles.

The output tile is `rows` x `columns` vectors, held in registers over the whole reduction. Columns run along the axis in which
one operand (the weights) is contiguous; rows along the spatial axis of the other. The rest of the output loops are outside,
and what follows the contraction (bias, activation, residual) runs on the finished tile.
"""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.errors import ScheduleError
from everport.targets import Target
from everport.tir.arith import IndexMap
from everport.tir.expr import Expr, Load, Var, as_int, free_vars
from everport.tir.rules.analysis import is_elementwise, loads_of_block, stride_of, written
from everport.tir.schedule import Schedule
from everport.tir.schedule.scope import find_loop, is_intermediate
from everport.tir.stmt import Block


@dataclass(frozen=True, slots=True)
class _Tile:
    """Which iterators (by position) run along vectors and rows, and how many lanes, vectors and rows a tile has."""

    column: int
    row: int | None
    lanes: int
    vectors: int
    rows: int


def schedule_contraction(s: Schedule, name: str, target: Target) -> set[str]:
    """Schedules a contraction and the elementwise blocks after it; gives the names of what it scheduled (empty: nothing)."""
    block = s.get_block(name)
    tile = _choose(block, target)
    if tile is None:
        return set()
    saved, length = s.func, len(s.trace.lines)
    try:
        return _tiled(s, name, tile, target)
    except ScheduleError:
        s.func = saved
        del s.trace.lines[length:]
        return set()


def _choose(block: Block, target: Target) -> _Tile | None:
    spatial = [k for k, i in enumerate(block.iters) if i.kind == "spatial"]
    loads = [n for n in loads_of_block(block) if n.buffer is not written(block)]
    itemsize = written(block).dtype.itemsize
    lanes = target.lanes(itemsize)
    column = _column(block, spatial, loads, lanes)
    if column is None:
        return None
    extent = as_int(block.iters[column].extent)
    row = _row(block, spatial, loads, column)
    rows = 1
    if row is not None:
        rows = _row_count(as_int(block.iters[row].extent), target)
    if extent is not None and extent < lanes:
        return None
    vectors = 2 if rows > 1 else 4
    while extent is not None and vectors > 1 and extent < lanes * vectors:
        vectors //= 2
    return _Tile(column, row, lanes, vectors, rows)


def _column(block: Block, spatial: list[int], loads: list[Load], lanes: int) -> int | None:
    """The spatial iterator along which every load is contiguous or fixed, and at least one contiguous: the last such."""
    best: tuple[int, int] | None = None
    for k in spatial:
        v = block.iters[k].var
        strides = [stride_of(n, v) for n in loads]
        if all(st in (0, 1) for st in strides) and 1 in strides:
            extent = as_int(block.iters[k].extent)
            if extent is not None and extent < lanes:
                continue
            whole = 1 if extent is None or extent % lanes == 0 else 0
            shared = sum(st == 0 for st in strides)
            score = 2 * shared + whole
            if best is None or score >= best[0]:
                best = (score, k)
    return None if best is None else best[1]


def _row(block: Block, spatial: list[int], loads: list[Load], column: int) -> int | None:
    """Another spatial iterator that the contiguous operand does not depend on: its vectors serve every row."""
    v = block.iters[column].var
    vector_loads = [n for n in loads if stride_of(n, v) == 1]
    for k in reversed(spatial):
        if k == column or as_int(block.iters[k].extent) == 1:
            continue
        w = block.iters[k].var
        if all(not any(w in free_vars(e) for e in n.indices) for n in vector_loads):
            return k
    return None


def _row_count(extent: int | None, target: Target) -> int:
    """Rows of a tile: as many as the registers hold beside the vectors, in near-equal parts of the extent."""
    most = 6 if target.level.vector_registers <= 16 else 12
    if extent is None or extent <= most:
        return most if extent is None else extent
    parts = -(-extent // most)
    while parts <= 2 * -(-extent // most):
        if extent % parts == 0:
            return extent // parts
        parts += 1
    return -(-extent // -(-extent // most))


def _tiled(s: Schedule, name: str, tile: _Tile, target: Target) -> set[str]:
    before = {b.name for b in s.blocks()}
    epilogue = _epilogue(s, name) or s.cache_write(name, "register")
    block = s.get_block(name)
    accumulator = written(block)
    s.set_scope(accumulator.name, "register")
    place = sum(i.kind == "spatial" for i in block.iters[: tile.column])
    if place != accumulator.rank - 1:  # vectors run along the accumulator's last axis
        rank = accumulator.rank
        s.transform_layout(accumulator.name, IndexMap.of(lambda *d: (*d[:place], *d[place + 1 :], d[place]), rank))
        block = s.get_block(name)
    loops = s.get_loops(name)
    column = loops[tile.column]
    row = loops[tile.row] if tile.row is not None else None
    reduces = [v for v, i in zip(loops, block.iters, strict=True) if i.kind == "reduce"]
    others = [v for v, i in zip(loops, block.iters, strict=True) if i.kind == "spatial" and v not in (column, row)]
    # Loops that choose other weights go outside the columns, the rest inside: a tile of weights stays in cache.
    first = [v for v in others if _chooses_weights(block, tile, loops.index(v))]
    second = [v for v in others if v not in first]
    order = [*first, column, *second, *([row] if row is not None else []), *reduces]
    s.reorder(*order)
    s.reverse_compute_at(epilogue, order[len(order) - len(reduces) - 1])
    _parallel_first(s, first)
    _columns(s, name, epilogue, column, second, row, reduces, tile, bool(first))
    return {name, epilogue, *({b.name for b in s.blocks()} - before)}


def _chooses_weights(block: Block, tile: _Tile, position: int) -> bool:
    """True if the contiguous operand depends on the iterator at a position."""
    column, v = block.iters[tile.column].var, block.iters[position].var
    loads = [n for n in loads_of_block(block) if n.buffer is not written(block) and stride_of(n, column) == 1]
    return any(v in free_vars(e) for n in loads for e in n.indices)


def _parallel_first(s: Schedule, first: list[Var]) -> None:
    extents = [as_int(find_loop(s.func, v).extent) for v in first]
    if first and any(e is None or e > 1 for e in extents):
        s.parallel(s.fuse(*first) if len(first) > 1 else first[0])


def _columns(
    s: Schedule,
    name: str,
    epilogue: str,
    column: Var,
    second: list[Var],
    row: Var | None,
    reduces: list[Var],
    tile: _Tile,
    shared: bool,
) -> None:
    """Cuts the columns into tiles, then (for what is left) into smaller ones, then into single columns."""
    vectors = tile.vectors
    while True:
        extent = find_loop(s.func, column).extent
        known = as_int(extent)
        width = tile.lanes * vectors
        if known is not None and known < width:
            if vectors > 1:
                vectors //= 2
                continue
            _rows(s, name, epilogue, column, second, row, reduces, 1, 1, tile, shared)
            return
        tail: Var | None = None
        if known is None or known % width:
            whole: Expr | int = known // width * width if known is not None else extent // width * width
            loops = s.get_loops(name)
            column, tail = s.loop_partition(column, whole)
            twin = _twin(s, name, tail)
            matching = s.get_loops(twin[0])
            moved = dict(zip(loops, matching, strict=True))
        _rows(s, name, epilogue, column, second, row, reduces, vectors, tile.lanes, tile, shared)
        if tail is None:
            return
        name, epilogue = twin
        column, second, reduces = tail, [moved[v] for v in second], [moved[v] for v in reduces]
        row = None if row is None else moved[row]
        if known is None:
            # Of unknown width: one vector at a time, then single columns.
            if vectors == 1:
                _rows(s, name, epilogue, column, second, row, reduces, 1, 1, tile, shared)
                return
            vectors = 1


def _twin(s: Schedule, name: str, tail: Var) -> tuple[str, str]:
    """The contraction and its epilogue under a loop that loop_partition made."""
    from_blocks = [b for b in s.blocks() if tail in s.get_loops(b.name)]
    contraction = next(b.name for b in from_blocks if b.is_reduction)
    return contraction, next(b.name for b in from_blocks if not b.is_reduction)


def _rows(
    s: Schedule,
    name: str,
    epilogue: str,
    column: Var,
    second: list[Var],
    row: Var | None,
    reduces: list[Var],
    vectors: int,
    lanes: int,
    tile: _Tile,
    shared: bool,
) -> None:
    """Cuts the rows of one width of columns into tiles; a remainder gets a smaller tile, or single rows."""
    column_o, column_v, column_l = s.split(column, (None, vectors, lanes))
    s.reorder(column_o, *second, *([row] if row is not None else []), column_v, column_l)
    if not shared:
        second = _parallel_columns(s, column_o, second)
    if row is None:
        _tile(s, name, epilogue, [column_v, column_l], reduces)
        return
    rows = tile.rows if lanes > 1 else 1
    while True:
        extent = find_loop(s.func, row).extent
        known = as_int(extent)
        size = rows if known is None else min(rows, known)
        tail: Var | None = None
        if size > 1 and (known is None or known % size):
            whole: Expr | int = known // size * size if known is not None else extent // size * size
            loops = s.get_loops(name)
            row, tail = s.loop_partition(row, whole)
            twin = _twin(s, name, tail)
            moved = dict(zip(loops, s.get_loops(twin[0]), strict=True))
        _, row_i = s.split(row, (None, size))
        _tile(s, name, epilogue, [row_i, column_v, column_l], reduces)
        if tail is None:
            return
        name, epilogue = twin
        row, column_v, column_l = tail, moved[column_v], moved[column_l]
        reduces, second = [moved[v] for v in reduces], []
        rows = 1 if known is None else int(known % size)


def _parallel_columns(s: Schedule, column_o: Var, second: list[Var]) -> list[Var]:
    """Tiles of columns run in parallel; where there are few, together with the loops inside. Gives the loops left inside."""
    extent = as_int(find_loop(s.func, column_o).extent)
    if extent is not None and extent < 4 and second:
        s.parallel(s.fuse(column_o, *second))
        return []
    s.parallel(column_o)
    return second


def _tile(s: Schedule, name: str, epilogue: str, inner: list[Var], reduces: list[Var]) -> None:
    """The loops `inner` hold the contraction and its epilogue: each gets its own, those of the contraction inside the
    reduction, written out and as vectors."""
    last = s.fission(inner[0])
    s.reorder(*reduces, *inner)
    init = s.decompose_reduction(name, reduces[0])
    own = [v for v in s.get_loops(init) if v not in s.get_loops(name)]
    for loops in (inner, list(last), *([own] if own else [])):
        extents = [as_int(find_loop(s.func, v).extent) for v in loops]
        if extents[-1] is not None and extents[-1] > 1:
            s.vectorize(loops[-1])
        for v, extent in zip(loops[:-1], extents[:-1], strict=True):
            if extent is not None and 1 < extent <= 32:
                s.unroll(v)


def _epilogue(s: Schedule, name: str) -> str | None:
    """The one elementwise block that reads the contraction at its own indices, if it is the only reader."""
    block = s.get_block(name)
    if not is_intermediate(s.func, written(block)):
        return None
    consumers = s.get_consumers(name)
    if len(consumers) != 1:
        return None
    consumer = s.get_block(consumers[0])
    if not is_elementwise(consumer) or len(consumer.iters) != sum(i.kind == "spatial" for i in block.iters):
        return None
    loads = {n for n in loads_of_block(consumer) if n.buffer is written(block)}
    own = tuple(i.var for i in consumer.iters)
    return consumer.name if loads and all(tuple(n.indices) == own for n in loads) else None
