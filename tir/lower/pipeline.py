"""The order of lowering, as a table of contents."""

from __future__ import annotations

from collections.abc import Callable

from everport.tir.func import PrimFunc
from everport.tir.lower.blocks import lower_blocks
from everport.tir.lower.init import lower_init
from everport.tir.lower.loops import clip_loops, simplify_loops, unroll_loops
from everport.tir.lower.storage import flatten_buffers, place_buffers
from everport.tir.lower.vectorize import vectorize_loops

DEVICE_PASSES: dict[str, Callable[[PrimFunc], PrimFunc]] = {
    "lower_init": lower_init,  # reductions start before their loops
    "lower_blocks": lower_blocks,  # iterators become loop expressions, predicates become conditions
    "place_buffers": place_buffers,  # intermediates shrink to what is live, or become workspaces
    "flatten_buffers": flatten_buffers,  # one flat index a buffer
    "simplify_loops": simplify_loops,  # loops of one step, decided conditions, canonical indices
    "clip_loops": clip_loops,  # conditions on a loop's variable become its extent
    "vectorize_loops": vectorize_loops,  # vectorized loops become vector expressions
    "unroll_loops": unroll_loops,  # unrolled loops become straight code
}


def lower(func: PrimFunc) -> PrimFunc:
    """Device TIR of a scheduled function (attribute stage="device")."""
    for step in DEVICE_PASSES.values():
        func = step(func)
    return func.with_attr(stage="device")
