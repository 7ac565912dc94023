"""From scheduled TIR to device TIR: flat buffers, explicit loops and vectors, no blocks."""

from everport.tir.lower.blocks import lower_blocks
from everport.tir.lower.init import lower_init
from everport.tir.lower.loops import clip_loops, simplify_loops, unroll_loops
from everport.tir.lower.pipeline import DEVICE_PASSES, lower
from everport.tir.lower.storage import flatten_buffers, place_buffers
from everport.tir.lower.vectorize import vectorize_loops

__all__ = [
    "DEVICE_PASSES",
    "clip_loops",
    "flatten_buffers",
    "lower",
    "lower_blocks",
    "lower_init",
    "place_buffers",
    "simplify_loops",
    "unroll_loops",
    "vectorize_loops",
]
