"""Schedule: a cursor over a PrimFunc that applies primitives and records them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from everport.tir.arith import IndexMap
from everport.tir.expr import Expr, Var
from everport.tir.func import PrimFunc
from everport.tir.schedule.blockize import blockize, tensorize
from everport.tir.schedule.cache import cache_read, cache_write, set_scope
from everport.tir.schedule.compute_location import compute_at, reverse_compute_at
from everport.tir.schedule.inline import compute_inline, reverse_compute_inline
from everport.tir.schedule.layout import transform_layout
from everport.tir.schedule.loops import (
    annotate,
    bind,
    fission,
    fuse,
    loop_partition,
    parallel,
    reorder,
    split,
    unroll,
    vectorize,
)
from everport.tir.schedule.reduction import decompose_reduction, rfactor
from everport.tir.schedule.scope import consumers_of, find_block, loops_above, outer_blocks, producers_of
from everport.tir.schedule.trace import Instruction, Trace
from everport.tir.stmt import Block

# Each primitive: (func, *arguments) -> func, or (func, results).
PRIMITIVES: dict[str, Callable[..., Any]] = {
    "split": split,
    "fuse": fuse,
    "reorder": reorder,
    "fission": fission,
    "parallel": parallel,
    "vectorize": vectorize,
    "unroll": unroll,
    "bind": bind,
    "annotate": annotate,
    "loop_partition": loop_partition,
    "compute_inline": compute_inline,
    "reverse_compute_inline": reverse_compute_inline,
    "compute_at": compute_at,
    "reverse_compute_at": reverse_compute_at,
    "cache_read": cache_read,
    "cache_write": cache_write,
    "set_scope": set_scope,
    "decompose_reduction": decompose_reduction,
    "rfactor": rfactor,
    "blockize": blockize,
    "tensorize": tensorize,
    "transform_layout": transform_layout,
}


class Schedule:
    """`func` is the function as it is now, `trace` what was done. A primitive that raises leaves both as they were."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.trace = Trace()

    def apply(self, primitive: str, *args: Any) -> Any:
        """Applies a primitive by name; gives its results (None, a loop, a block's name, or a tuple of loops)."""
        result = PRIMITIVES[primitive](self.func, *args)
        func, outcome = result if isinstance(result, tuple) else (result, None)
        self.trace.add(Instruction(primitive, args, outcome), self.func)
        self.func = func
        return outcome

    def get_loops(self, block: str) -> list[Var]:
        """The loops around a block, outermost first."""
        return [f.var for f in loops_above(self.func, block)]

    def get_block(self, name: str) -> Block:
        return find_block(self.func, name)

    def blocks(self) -> list[Block]:
        """The outer blocks in program order."""
        return outer_blocks(self.func.root.body)

    def get_producers(self, block: str) -> list[str]:
        """Blocks that write what a block reads."""
        found = find_block(self.func, block)
        return list(dict.fromkeys(p.name for r in found.reads for p in producers_of(self.func, r.buffer) if p is not found))

    def get_consumers(self, block: str) -> list[str]:
        """Blocks that read what a block writes."""
        found = find_block(self.func, block)
        return list(dict.fromkeys(c.name for w in found.writes for c in consumers_of(self.func, w.buffer) if c is not found))

    def split(self, loop: Var, factors: Sequence[int | Expr | None]) -> tuple[Var, ...]:
        return self.apply("split", loop, tuple(factors))

    def fuse(self, *loops: Var) -> Var:
        return self.apply("fuse", tuple(loops))

    def reorder(self, *loops: Var) -> None:
        self.apply("reorder", tuple(loops))

    def fission(self, loop: Var) -> tuple[Var, ...]:
        return self.apply("fission", loop)

    def parallel(self, loop: Var) -> None:
        self.apply("parallel", loop)

    def vectorize(self, loop: Var) -> None:
        self.apply("vectorize", loop)

    def unroll(self, loop: Var) -> None:
        self.apply("unroll", loop)

    def bind(self, loop: Var, thread: str) -> None:
        self.apply("bind", loop, thread)

    def annotate(self, target: Var | str, name: str, value: Any) -> None:
        self.apply("annotate", target, name, value)

    def loop_partition(self, loop: Var, at: Expr | int) -> tuple[Var, Var]:
        return self.apply("loop_partition", loop, at)

    def compute_inline(self, block: str) -> None:
        self.apply("compute_inline", block)

    def reverse_compute_inline(self, block: str) -> None:
        self.apply("reverse_compute_inline", block)

    def compute_at(self, block: str, loop: Var) -> None:
        self.apply("compute_at", block, loop)

    def reverse_compute_at(self, block: str, loop: Var) -> None:
        self.apply("reverse_compute_at", block, loop)

    def cache_read(self, block: str, buffer: str, scope: str) -> str:
        return self.apply("cache_read", block, buffer, scope)

    def cache_write(self, block: str, scope: str) -> str:
        return self.apply("cache_write", block, scope)

    def set_scope(self, buffer: str, scope: str) -> None:
        self.apply("set_scope", buffer, scope)

    def decompose_reduction(self, block: str, loop: Var) -> str:
        return self.apply("decompose_reduction", block, loop)

    def rfactor(self, block: str, loop: Var, axis: int = 0) -> str:
        return self.apply("rfactor", block, loop, axis)

    def blockize(self, loop: Var) -> str:
        return self.apply("blockize", loop)

    def tensorize(self, loop: Var, intrin: str) -> None:
        self.apply("tensorize", loop, intrin)

    def transform_layout(self, buffer: str, index_map: IndexMap) -> None:
        self.apply("transform_layout", buffer, index_map)
