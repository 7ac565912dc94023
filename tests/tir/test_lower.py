"""Lowering: what each pass makes, and that none changes what a function computes."""

from __future__ import annotations

import numpy as np
import pytest
from support.native import allocated, native, same
from support.programs import Program

from everport.ir.dtype import f32, i64
from everport.ir.node import post_order, pre_order
from everport.tir import interp
from everport.tir.arith import Analyzer
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import (
    Broadcast,
    Const,
    Load,
    Ramp,
    Select,
    Var,
    as_int,
    binary,
    cast,
    const,
    eq,
    ge,
    logical_and,
    lt,
    select,
)
from everport.tir.func import PrimFunc
from everport.tir.lower import (
    DEVICE_PASSES,
    clip_loops,
    flatten_buffers,
    lower,
    lower_blocks,
    lower_init,
    place_buffers,
    simplify_loops,
    unroll_loops,
    vectorize_loops,
)
from everport.tir.schedule import Schedule
from everport.tir.stmt import Allocate, Block, For, If, Stmt, Store, seq


def every(root: Stmt, kind: type) -> list:
    return [n for n in pre_order(root) if isinstance(n, kind)]


def run(func: PrimFunc, inputs: list[np.ndarray], ints: list[int]) -> list[np.ndarray]:
    """Outputs (flat) of a function at any stage of lowering."""
    made = allocated(func, ints)
    interp.run(func, *[np.ravel(i) for i in inputs], *made, *ints)
    return made[: func.num_outputs]


def preserved(func: PrimFunc, inputs: list[np.ndarray], ints: list[int] = []) -> None:  # noqa: B006
    """Every pass, one after the other, gives what the scheduled function gives, and so does native code."""
    expected = run(func, inputs, ints)
    step = func
    for name, lowering in DEVICE_PASSES.items():
        step = lowering(step)
        got = run(step, inputs, ints)
        assert all(same(a, b) for a, b in zip(got, expected, strict=True)), name
    assert all(same(a, b) for a, b in zip(native(func, inputs, ints), expected, strict=True)), "native"


@pytest.mark.parametrize("seed", range(40))
def test_random_schedules_of_random_programs(seed: int) -> None:
    program = Program(seed)
    inputs = program.inputs()
    expected = run(program.func, inputs, program.ints)
    scheduled = program.scheduled()
    got = run(scheduled, inputs, program.ints)
    assert all(same(a, b) for a, b in zip(got, expected, strict=True)), "schedule"
    preserved(scheduled, inputs, program.ints)


# -- inits ---------------------------------------------------------------------------------------------------------------


def row_sums(n, m) -> PrimFunc:
    b = FuncBuilder("rows")
    x = b.input("x", (n, m), f32)
    b.output(b.reduce("y", (n,), (m,), f32, "sum", lambda i, k: x[i, k]))
    return b.finish()


def test_init_moves_before_the_reduce_loop() -> None:
    func = lower_init(row_sums(4, 8))
    names = [b.name for b in every(func.body, Block)]
    assert names == ["root", "y_init", "y"]
    outer = func.root.body
    assert isinstance(outer, For) and [type(s) for s in outer.body.stmts] == [Block, For]


@pytest.mark.parametrize("shape", [(3, 0), (0, 3), (0, 0), (2, 5)])
def test_a_reduction_over_nothing_gives_its_start(shape: tuple[int, int]) -> None:
    n, m = Var("n"), Var("m")
    func = row_sums(n, m)
    x = np.arange(shape[0] * shape[1], dtype=np.float32).reshape(shape)
    assert np.array_equal(native(func, [x], list(shape))[0], x.sum(1))
    assert np.array_equal(interp.call(func, [x], list(shape))[0], x.sum(1))


def test_an_init_without_loops_of_its_own_is_guarded() -> None:
    """A hand-written block: its reduce iterator is bound to a loop that other blocks share."""
    func = row_sums(4, 8)
    block = func.block("y")
    i, k = Var("i"), Var("k")
    body = For(k, Const(8), For(i, Const(4), block.with_fields(bindings=(i, k))))
    func = func.with_fields(body=func.root.with_fields(body=body))
    guarded = lower_blocks(func)
    conditions = [s.cond for s in every(guarded.body, If)]
    assert [str(c) for c in conditions] == ["k == 0"]
    preserved(func, [np.arange(32, dtype=np.float32)])


# -- places of buffers ---------------------------------------------------------------------------------------------------


def chain(n=8, m=16) -> PrimFunc:
    b = FuncBuilder("chain")
    x = b.input("x", (n, m), f32)
    t = b.compute("t", (n, m), f32, lambda i, j: x[i, j] + const(1.0, f32))
    b.output(b.compute("y", (n, m), f32, lambda i, j: t[i, j] * t[i, j]))
    return b.finish()


def placed(func: PrimFunc) -> PrimFunc:
    return place_buffers(lower_blocks(lower_init(func)))


def test_a_buffer_between_nests_becomes_a_workspace() -> None:
    func = placed(chain())
    assert func.num_workspaces == 1 and func.buffers[-1].name == "t" and not every(func.body, Allocate)
    assert func.buffers[-1].align == 64
    preserved(chain(), [np.arange(128, dtype=np.float32)])


def test_a_buffer_within_one_loop_shrinks_to_what_a_step_uses() -> None:
    s = Schedule(chain())
    s.compute_at("t", s.get_loops("y")[0])
    func = placed(s.func)
    (allocation,) = every(func.body, Allocate)
    assert func.num_workspaces == 0 and allocation.buffer.static_shape() == (1, 16)
    preserved(s.func, [np.arange(128, dtype=np.float32)])


def test_a_large_or_symbolic_region_becomes_a_workspace() -> None:
    s = Schedule(chain(4, 1 << 17))
    s.compute_at("t", s.get_loops("y")[0])
    assert placed(s.func).num_workspaces == 1
    m = Var("m")
    s = Schedule(chain(4, m))
    s.compute_at("t", s.get_loops("y")[0])
    assert placed(s.func).num_workspaces == 1


def stencil(n, m) -> PrimFunc:
    b = FuncBuilder("stencil")
    x = b.input("x", (n + 1, m), f32)
    t = b.reduce("t", (n + 1, m), (2,), f32, "sum", lambda i, j, k: x[i, j] * cast(k + 1, f32))
    b.output(b.reduce("y", (n, m), (2,), f32, "sum", lambda i, j, k: t[i + k, j]))
    return b.finish()


def test_steps_of_a_parallel_loop_have_workspaces_of_their_own() -> None:
    """Rows overlap between steps: one step's start of the sum would destroy what its neighbour reads."""
    m = Var("m")
    s = Schedule(stencil(6, m))
    rows = s.get_loops("y")[0]
    s.compute_at("t", rows)
    s.parallel(rows)
    func = placed(s.func)
    (workspace,) = func.buffers[2:]
    assert [str(e) for e in workspace.shape] == ["6", "2", "m"]
    preserved(s.func, [np.arange(35, dtype=np.float32)], [5])


def test_disjoint_parts_need_no_copies() -> None:
    m = Var("m")
    s = Schedule(chain(6, m))
    rows = s.get_loops("y")[0]
    s.compute_at("t", rows)
    s.parallel(rows)
    func = placed(s.func)
    assert [str(e) for e in func.buffers[-1].shape] == ["6", "m"]


def running_sum() -> PrimFunc:
    """t carries the sum from one step of the loop to the next."""
    b = FuncBuilder("running")
    x, t, y = b.input("x", (6, 4), f32), b.buffer("t", (4,), f32), b.buffer("y", (6, 4), f32)

    def body(k):
        j, q = Var("j"), Var("q")
        start = If(eq(k, 0), Store(t, (j,), const(0.0, f32)))
        add = For(j, Const(4), seq(start, Store(t, (j,), t[j] + x[k, j])))
        return seq(add, For(q, Const(4), Store(y, (k, q), t[q])))

    b.block("scan", [("k", 6, "opaque")], [t, y], body, reads=[x])
    b.output(y)
    return b.finish()


def recurrence() -> PrimFunc:
    """y[k] from y[k - 1], through a buffer that only this loop uses."""
    b = FuncBuilder("recurrence")
    x, t, y = b.input("x", (9,), f32), b.buffer("t", (9,), f32), b.buffer("y", (9,), f32)

    def body(k):
        before = select(ge(k, 1), t[k - 1], const(0.0, f32))
        return seq(Store(t, (k,), x[k] + before), Store(y, (k,), t[k]))

    b.block("scan", [("k", 9, "opaque")], [t, y], body, reads=[x])
    b.output(y)
    return b.finish()


@pytest.mark.parametrize("make", [running_sum, recurrence])
def test_state_that_steps_hand_on_stays_outside_their_loop(make) -> None:
    func = make()
    assert placed(func).num_workspaces == 1
    x = np.arange(24 if make is running_sum else 9, dtype=np.float32)
    preserved(func, [x])
    expected = np.cumsum(x.reshape(-1, 4), 0) if make is running_sum else np.cumsum(x)
    assert np.array_equal(native(func, [x])[0], expected.ravel())


def test_a_block_s_own_symbolic_buffer_becomes_a_workspace() -> None:
    n = Var("n")
    b = FuncBuilder("reverse")
    x, y = b.input("x", (3, n), f32), b.buffer("y", (3, n), f32)
    t = Buffer("t", (n,), f32)

    def body(i):
        j, q = Var("j"), Var("q")
        return seq(For(j, n, Store(t, (j,), x[i, j])), For(q, n, Store(y, (i, q), t[n - 1 - q])))

    b.block("reverse", [("i", 3, "spatial")], [y], body, reads=[x], allocs=[t])
    b.output(y)
    func = b.finish()
    loop = func.root.body
    func = func.with_fields(body=func.root.with_fields(body=loop.with_fields(kind="parallel")))
    assert [str(e) for e in placed(func).buffers[-1].shape] == ["3", "n"]
    data = np.arange(12, dtype=np.float32).reshape(3, 4)
    preserved(func, [data], [4])
    assert np.array_equal(native(func, [data], [4])[0], data[:, ::-1].ravel())


# -- loops ---------------------------------------------------------------------------------------------------------------


def device(loop: For, *buffers: Buffer, scalars: tuple[Var, ...] = ()) -> PrimFunc:
    return PrimFunc("f", (*buffers, *scalars), loop, (("num_outputs", 1),))


def test_conditions_become_extents() -> None:
    n, i, j = Var("n"), Var("i"), Var("j")
    y = Buffer("y", (n,), f32)
    store = Store(y, (i * 16 + j,), const(1.0, f32))
    nest = For(i, (n + 15) // 16, For(j, Const(16), If(lt(i * 16 + j, n), store)))
    func = clip_loops(device(nest, y, scalars=(n,)))
    assert not every(func.body, If)
    for count in (0, 1, 15, 16, 33):
        assert np.array_equal(run(func, [], [count])[0], np.ones(count, np.float32))


def test_conditions_that_no_loop_decides_move_out() -> None:
    n, i, j = Var("n"), Var("i"), Var("j")
    y = Buffer("y", (4, 16), f32)
    store = Store(y, (i, j), const(1.0, f32))
    func = clip_loops(device(For(i, Const(4), For(j, Const(16), If(lt(i, n), store), "vectorized")), y, scalars=(n,)))
    assert isinstance(func.body, For) and isinstance(func.body.body, For) and not every(func.body, If)
    assert run(func, [], [3])[0].reshape(4, 16)[:3].sum() == 48


def test_simplify_drops_what_never_runs() -> None:
    i, j = Var("i"), Var("j")
    y = Buffer("y", (8,), f32)
    one = Store(y, (i + j,), const(1.0, f32))
    nest = For(i, Const(8), For(j, Const(1), seq(If(lt(i, 8), one), If(ge(i, 8), one), For(Var("k"), Const(0), one))))
    func = simplify_loops(device(nest, y))
    assert isinstance(func.body, For) and isinstance(func.body.body, Store) and func.body.body.indices[0] is i


def test_unroll_writes_out_and_keeps_variables_apart() -> None:
    i, j = Var("i"), Var("j")
    y = Buffer("y", (12,), f32)
    nest = For(i, Const(3), For(j, Const(4), Store(y, (i * 4 + j,), cast(j, f32))), "unrolled")
    func = unroll_loops(device(nest, y))
    loops = every(func.body, For)
    assert len(loops) == 3 and len({f.var for f in loops}) == 3
    assert np.array_equal(run(func, [], [])[0], np.tile(np.arange(4, dtype=np.float32), 3))


# -- vectors -------------------------------------------------------------------------------------------------------------


def vectorized(value, count=16, index=lambda i, v: i * 16 + v, buffers=()) -> PrimFunc:
    i, v = Var("i"), Var("v")
    y = Buffer("y", (64,), f32)
    nest = For(i, Const(4), For(v, Const(count), Store(y, (index(i, v),), value(i, v)), "vectorized"))
    return vectorize_loops(device(nest, *buffers, y))


def test_contiguous_strided_and_equal_loads() -> None:
    x = Buffer("x", (256,), f32)
    func = vectorized(lambda i, v: x[i * 16 + v] + x[i * 16 + v * 3] * x[i], buffers=(x,))
    assert len(every(func.body, For)) == 1
    loads = {str(n.indices[0]): n.lanes for n in post_order(func.body) if isinstance(n, Load)}
    assert loads == {"ramp(i * 16, 1, 16)": 16, "ramp(i * 16, 3, 16)": 16, "i": 1}
    assert any(isinstance(n, Broadcast) and isinstance(n.a, Load) for n in post_order(func.body))
    data = np.arange(256, dtype=np.float32)
    i, v = np.divmod(np.arange(64), 16)
    assert np.array_equal(run(func, [data], [])[0], data[i * 16 + v] + data[i * 16 + v * 3] * data[i])


def test_conditions_become_masks() -> None:
    i, v = Var("i"), Var("v")
    x, y = Buffer("x", (50,), f32), Buffer("y", (50,), f32)
    at = i * 16 + v
    nest = For(i, Const(4), For(v, Const(16), If(lt(at, 50), Store(y, (at,), x[at])), "vectorized"))
    func = vectorize_loops(device(nest, x, y))
    (store,) = every(func.body, Store)
    assert store.mask is not None and store.mask.lanes == 16 and isinstance(store.indices[0], Ramp)
    data = np.arange(50, dtype=np.float32)
    assert np.array_equal(run(func, [data], [])[0], data)  # the interpreter refuses loads outside


def test_guarded_loads_keep_their_guard() -> None:
    x = Buffer("x", (8,), f32)
    func = vectorized(lambda i, v: select(logical_and(eq(i, 0), lt(v, 8)), x[i * 16 + v], const(-1.0, f32)), buffers=(x,))
    assert every(func.body, Select) or any(isinstance(n, Select) for n in post_order(func.body))
    got = run(func, [np.arange(8, dtype=np.float32)], [])[0]
    assert np.array_equal(got[:8], np.arange(8)) and np.all(got[8:] == -1)


def test_a_running_value_stays_serial() -> None:
    """Every lane adds to one element: the lanes must take turns, even where what they add is the same."""
    i, v = Var("i"), Var("v")
    y = Buffer("y", (4,), f32)
    body = seq(Store(y, (i,), const(0.0, f32)), For(v, Const(16), Store(y, (i,), y[i] + const(1.0, f32)), "vectorized"))
    func = vectorize_loops(device(For(i, Const(4), body), y))
    assert [f.kind for f in every(func.body, For)] == ["serial", "serial"]
    assert np.array_equal(run(func, [], [])[0], np.full(4, 16, np.float32))


def test_each_lane_has_its_own_local_buffer() -> None:
    i, v, k = Var("i"), Var("v"), Var("k")
    x, y, t = Buffer("x", (64, 4), f32), Buffer("y", (64,), f32), Buffer("t", (1,), f32, "local")
    zero = Const(0)
    row = i * 16 + v
    inner = seq(
        Store(t, (zero,), const(0.0, f32)),
        For(k, Const(4), Store(t, (zero,), t[0] + x[row, k])),
        Store(y, (row,), t[0]),
    )
    nest = For(i, Const(4), For(v, Const(16), Allocate(t, inner), "vectorized"))
    func = vectorize_loops(flatten_buffers(device(nest, x, y)))
    (allocation,) = every(func.body, Allocate)
    assert as_int(allocation.buffer.shape[0]) == 16 and [f.kind for f in every(func.body, For)] == ["serial", "serial"]
    data = np.arange(256, dtype=np.float32)
    assert np.array_equal(run(func, [data], [])[0], data.reshape(64, 4).sum(1))


def test_lowered_functions_say_so() -> None:
    func = lower(chain())
    assert func.attr("stage") == "device" and not every(func.body, Block)
    assert all(b.rank == 1 for b in func.buffers)


def test_index_facts_hold_inside_loops() -> None:
    """Within `for i in range(n)` n is at least 1, so i // n is 0."""
    n, i = Var("n"), Var("i")
    y = Buffer("y", (n,), i64)
    func = simplify_loops(device(For(i, n, Store(y, (i,), binary("//", i, n) + binary("%", i, n))), y, scalars=(n,)))
    (store,) = every(func.body, Store)
    assert store.value is i
    assert Analyzer().simplify(binary("//", i, n)) is not Const(0)
