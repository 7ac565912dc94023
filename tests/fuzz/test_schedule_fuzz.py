"""Random primitives on random functions: accepted ones keep the meaning and valid IR, the rest are refused with a reason.

After every accepted step the function is verified and interpreted (parallel loops in random order) against the original; at the
end the trace is printed, parsed and replayed. Nothing but ScheduleError may be raised.
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from support.programs import Program

from everport.ir.errors import ScheduleError
from everport.ir.node import structural_equal
from everport.tir.arith import IndexMap
from everport.tir.expr import Var
from everport.tir.interp import call as interpret
from everport.tir.schedule import PRIMITIVES, Schedule, parse_trace
from everport.tir.verify import verify


def attempt(s: Schedule, rng: random.Random) -> str:
    """One random primitive with random arguments, sensible or not; gives its name."""
    blocks = [b.name for b in s.blocks()]
    block, other = rng.choice(blocks), rng.choice(blocks)
    loops = s.get_loops(block) or [Var("nowhere")]
    loop, far = rng.choice(loops), rng.choice(s.get_loops(other) or loops)
    buffers = [b.name for b in s.func.root.allocs] or ["nothing"]
    name = rng.choice(list(PRIMITIVES))
    match name:
        case "split":
            s.split(loop, rng.choice([(None, 2), (None, 4), (3, None), (2, 3), (None, 2, 2), (None, None), (0, None)]))
        case "fuse":
            k = rng.randrange(len(loops))
            s.fuse(*loops[k : k + rng.randint(1, 3)])
        case "reorder":
            s.reorder(*rng.sample(loops, rng.randint(1, len(loops))))
        case "fission":
            s.fission(loop)
        case "parallel":
            s.parallel(loop)
        case "vectorize":
            s.vectorize(loop)
        case "unroll":
            s.unroll(loop)
        case "bind":
            s.bind(loop, rng.choice(["threadIdx.x", "blockIdx.x", "threadIdx.q"]))
        case "annotate":
            s.annotate(rng.choice([loop, block]), "note", rng.randint(0, 9))
        case "loop_partition":
            s.loop_partition(loop, rng.choice([0, 1, 2, 4, 100]))
        case "compute_inline":
            s.compute_inline(block)
        case "reverse_compute_inline":
            s.reverse_compute_inline(block)
        case "compute_at":
            s.compute_at(block, far)
        case "reverse_compute_at":
            s.reverse_compute_at(block, far)
        case "cache_read":
            reads = [r.buffer.name for r in s.get_block(block).reads] or ["nothing"]
            s.cache_read(block, rng.choice(reads), "local")
        case "cache_write":
            s.cache_write(block, rng.choice(["local", "global", "moon"]))
        case "set_scope":
            s.set_scope(rng.choice(buffers), rng.choice(["local", "global"]))
        case "decompose_reduction":
            s.decompose_reduction(block, loop)
        case "rfactor":
            s.rfactor(block, loop, rng.choice([0, 1, 9]))
        case "blockize":
            s.blockize(loop)
        case "tensorize":
            s.tensorize(loop, rng.choice(["fma_f32x4", "fma_f32x8", "magic"]))
        case "transform_layout":
            index_map = rng.choice(
                [IndexMap.of(lambda a, b: (b, a), 2), IndexMap.of(lambda a: (a // 2, a % 2), 1), IndexMap.of(lambda a, b: (a, b // 4, b % 4), 2)]
            )
            s.transform_layout(rng.choice(buffers), index_map)
        case _:
            raise AssertionError(f"the fuzzer does not know the primitive {name!r}")
    return name


def fuzz(seed: int, steps: int) -> None:
    program = Program(seed)
    inputs, ints = program.inputs(), program.ints
    expected = interpret(program.func, inputs, ints)
    s, rng = Schedule(program.func), random.Random(seed)
    for _ in range(steps):
        before = s.func
        try:
            name = attempt(s, rng)
        except ScheduleError as error:
            assert len(str(error)) > 10
            assert s.func is before, "a refused primitive changed the function"
            continue
        where = f"seed {seed}, after {name}:\n{s.trace.script()}"
        verify(s.func)
        for got, want in zip(interpret(s.func, inputs, ints, order="random", seed=seed), expected, strict=True):
            np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5, atol=1e-5, err_msg=where)
    replayed = parse_trace(s.trace.script()).apply(program.func, Schedule)
    assert structural_equal(replayed, s.func), s.trace.script()


@pytest.mark.parametrize("seed", range(40))
def test_fuzz(seed: int) -> None:
    fuzz(seed, 14)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(1000, 1400))
def test_fuzz_long(seed: int) -> None:
    fuzz(seed, 30)
