"""lower_init: the starts of reductions become statements of their own."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.tir.expr import free_vars
from everport.tir.func import PrimFunc
from everport.tir.schedule.reduction import decompose_reduction
from everport.tir.schedule.scope import block_path, blocks_in, loops_in


def lower_init(func: PrimFunc) -> PrimFunc:
    """Hoists each init that is still in its block before the outermost reduce loop.

    So a reduction over nothing gives its start value. An init that cannot be hoisted (its block stands in no loop of its
    own) stays, and runs where all reduce iterators are 0.
    """
    for block in blocks_in(func.body):
        if block.init is None:
            continue
        bindings = [b for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce"]
        used = set(free_vars(bindings))
        outermost = next((f.var for f in loops_in(block_path(func, block.name)) if f.var in used), None)
        if outermost is None:
            continue
        try:
            func, _ = decompose_reduction(func, block.name, outermost)
        except ScheduleError:
            continue  # lower_blocks guards it
    return func
