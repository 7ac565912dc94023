"""Elementwise nests: vectors along the contiguous axis, parallel outer loops, a scalar tail where the extent does not divide."""

from __future__ import annotations

from everport.targets import Target
from everport.tir.expr import Var, as_int
from everport.tir.rules.analysis import loads_of_block, points, same_shape_access, stride_of, written
from everport.tir.schedule import Schedule
from everport.tir.schedule.scope import find_loop

PARALLEL_FROM = 32 * 1024  # elements of work from which threads pay


def schedule_elementwise(s: Schedule, name: str, target: Target) -> None:
    """Schedules one elementwise block that has a nest of its own."""
    block = s.get_block(name)
    loops = s.get_loops(name)
    if not loops:
        return
    work = points(block)
    itemsize = max([written(block).dtype.itemsize, *(n.buffer.dtype.itemsize for n in loads_of_block(block))])
    lanes = min(16, target.lanes(itemsize) * (2 if itemsize < 8 else 1))
    large = work is None or work >= PARALLEL_FROM
    if same_shape_access(block):
        flat = s.fuse(*loops)
        main = _vectorized(s, flat, lanes)
        if large and main is not None:
            _chunked(s, main, lanes)
        elif large:
            s.parallel(flat)
        return
    inner = loops[-1]
    extent = as_int(find_loop(s.func, inner).extent)
    strides = [stride_of(n, _iter_of(s, name, inner)) for n in loads_of_block(block)]
    regular = all(st in (0, 1) for st in strides)
    if regular and (extent is None or extent >= lanes // 2):
        width = lanes if extent is None or extent >= lanes else lanes // 2
        _vectorized(s, inner, width)
    if large:
        outer = s.get_loops(name)
        count = len(loops) - 1
        if count:
            fused = s.fuse(*outer[:count]) if count > 1 else outer[0]
            s.parallel(fused)


def _iter_of(s: Schedule, name: str, loop: Var) -> Var:
    """The iterator that a loop drives."""
    block = s.get_block(name)
    for it, binding in zip(block.iters, block.bindings, strict=True):
        if binding is loop:
            return it.var
    return loop


def _vectorized(s: Schedule, loop: Var, lanes: int) -> Var | None:
    """Splits a loop into vectors, with the remainder in a loop of its own; gives the loop over vectors."""
    extent = find_loop(s.func, loop).extent
    known = as_int(extent)
    if known is not None and known < lanes:
        return None
    if known is None or known % lanes:
        whole = extent // lanes * lanes
        loop, _ = s.loop_partition(loop, whole if known is None else known // lanes * lanes)
    outer, inner = s.split(loop, (None, lanes))
    s.vectorize(inner)
    return outer


def _chunked(s: Schedule, loop: Var, lanes: int) -> None:
    """Makes a long loop over vectors parallel in pieces of some thousand elements."""
    extent = as_int(find_loop(s.func, loop).extent)
    piece = max(1, 4096 // lanes)
    if extent is not None and extent <= piece:
        s.parallel(loop)
        return
    outer, _ = s.split(loop, (None, piece))
    s.parallel(outer)
