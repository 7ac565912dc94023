"""The CPU's default schedule: inline, then one rule for each nest that is left.

Order: producers that are cheap to recompute are inlined; contractions get register tiles with what follows them at the tile;
rows (softmax, normalisation) are fused over their common outer loops; reductions and elementwise nests get vectors and
parallel outer loops. What no rule fits stays a serial loop.
"""

from __future__ import annotations

from collections.abc import Callable

from everport.ir.errors import ScheduleError
from everport.targets import Target
from everport.tir.expr import as_int
from everport.tir.func import PrimFunc
from everport.tir.rules.analysis import (
    intermediates_first,
    is_contraction,
    is_costly,
    is_elementwise,
    is_reduction,
    loads_of_block,
    written,
)
from everport.tir.rules.contraction import schedule_contraction
from everport.tir.rules.elementwise import schedule_elementwise
from everport.tir.rules.reduction import fuse_rows, schedule_reduction
from everport.tir.schedule import Schedule, Trace
from everport.tir.schedule.scope import loops_above, single_store
from everport.tir.stmt import Block


def schedule(func: PrimFunc, target: Target) -> PrimFunc:
    """The function with the default schedule."""
    return _scheduled(func, target).func


def schedule_trace(func: PrimFunc, target: Target) -> Trace:
    """The default schedule as data."""
    return _scheduled(func, target).trace


def _scheduled(func: PrimFunc, target: Target) -> Schedule:
    s = Schedule(func)
    inline_producers(s)
    done: set[str] = set()
    for block in list(s.blocks()):
        if is_contraction(block):
            done |= schedule_contraction(s, block.name, target)
    done |= fuse_rows(s, done, target)
    for block in list(s.blocks()):
        if block.name in done or not _alone(s, block):
            continue
        if is_reduction(block):
            attempt(s, lambda name=block.name: schedule_reduction(s, name, target))
        elif is_elementwise(block):
            attempt(s, lambda name=block.name: schedule_elementwise(s, name, target))
    return s


def attempt(s: Schedule, rule: Callable[[], None]) -> bool:
    """Applies a rule whole or not at all: where a primitive is refused the nest stays as it was (serial, but right)."""
    saved, length = s.func, len(s.trace.lines)
    try:
        rule()
    except ScheduleError:
        s.func = saved
        del s.trace.lines[length:]
        return False
    return True


def _alone(s: Schedule, block: Block) -> bool:
    """True if the block still has a nest of its own."""
    return any(b.name == block.name for b in s.blocks()) and not any(
        f.kind != "serial" for f in loops_above(s.func, block.name)
    )


def inline_producers(s: Schedule) -> None:
    """Inlines each elementwise intermediate unless that would repeat costly work."""
    for block in intermediates_first(s):
        if not is_elementwise(block) or not _worth_inlining(s, block):
            continue
        try:
            s.compute_inline(block.name)
        except ScheduleError:
            continue  # it keeps a nest of its own


def _worth_inlining(s: Schedule, block: Block) -> bool:
    store = single_store(block)
    assert store is not None
    loads = loads_of_block(block)
    if not loads and not is_costly(store.value):
        return True  # a constant or an index
    consumers = [s.get_block(n) for n in s.get_consumers(block.name)]
    buffer = written(block)
    for consumer in consumers:
        if not single_store(consumer):
            return False  # an opaque block may read it any number of times
        if is_contraction(consumer):
            return False  # its operands are read many times, and its inner loop must stay bare
        if is_reduction(consumer):
            covered = {v for n in loads_of_block(consumer) if n.buffer is buffer for e in n.indices for v in [e]}
            again = [i for i in consumer.iters if as_int(i.extent) != 1 and i.var not in covered]
            if again and is_costly(store.value):
                return False
    return len(consumers) <= 1 or not is_costly(store.value)
