"""Every type, operator and conversion: native code against the interpreter, one lane and many."""

from __future__ import annotations

import numpy as np
import pytest
from support.native import interpreted, native, same, values_of, wide

from everport.ir.dtype import DTYPES, DType, boolean, f32, i32, i64
from everport.tir.build import FuncBuilder
from everport.tir.expr import (
    COMPARISONS,
    Const,
    Load,
    Var,
    binary,
    cast,
    const,
    eq,
    ge,
    logical_and,
    lt,
    select,
    unary,
)
from everport.tir.func import PrimFunc
from everport.tir.stmt import For, If, Let, Store, While, seq

COUNT = 256
TYPES = list(DTYPES.values())


def check(func: PrimFunc, inputs: list[np.ndarray], ints: tuple[int, ...] = ()) -> None:
    expected = interpreted(func, inputs, ints)
    either_zero = [b.dtype.is_float and b.name in ("op_min", "op_max") for b in func.outputs]
    for variant in (func, wide(func, COUNT)):
        for k, (buffer, got) in enumerate(zip(func.outputs, native(variant, inputs, ints), strict=True)):
            wanted = expected[k]
            if either_zero[k]:
                got, wanted = got + got.dtype.type(0), wanted + wanted.dtype.type(0)
            if not same(got, wanted):
                bad = [k for k in range(got.size) if not same(got[k : k + 1], wanted[k : k + 1])]
                shown = [(k, got[k], wanted[k], [i.ravel()[k] for i in inputs if i.size > k]) for k in bad[:4]]
                raise AssertionError(f"{buffer.name}: {len(bad)} differ (index, got, expected, inputs): {shown}")


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_casts(source: DType) -> None:
    b = FuncBuilder("casts")
    x = b.input("x", (COUNT,), source)
    for t in TYPES:
        b.output(b.compute(f"to_{t}", (COUNT,), t, lambda i, t=t: cast(x[i], t)))
    check(b.finish(), [values_of(source, COUNT)])


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_operators(t: DType) -> None:
    ops = ["min", "max", *COMPARISONS]
    if t.is_bool:
        ops += ["and", "or", "&", "|", "^"]
    elif t.is_int:
        ops += ["+", "-", "*", "//", "%", "tdiv", "tmod", "&", "|", "^", "<<", ">>"]
    else:
        ops += ["+", "-", "*", "/"]
    b = FuncBuilder("operators")
    x, y = b.input("x", (COUNT,), t), b.input("y", (COUNT,), t)
    for op in ops:
        result = boolean if op in (*COMPARISONS, "and", "or") else t
        b.output(b.compute(f"op_{op}", (COUNT,), result, lambda i, op=op: binary(op, x[i], y[i])))
    for op in ["not"] if t.is_bool else ["neg", "~"] if t.is_int else ["neg"]:
        b.output(b.compute(f"op_{op}", (COUNT,), t, lambda i, op=op: unary(op, x[i])))
    check(b.finish(), [values_of(t, COUNT, 1), np.roll(values_of(t, COUNT, 2), 7)])


@pytest.mark.parametrize("t", [t for t in TYPES if t.is_int], ids=str)
def test_division_by_constants(t: DType) -> None:
    b = FuncBuilder("division")
    x = b.input("x", (COUNT,), t)
    for d in (1, 2, 3, 7, 8, -1, -2, -3):
        if t.min_value <= d <= t.max_value:
            for op in ("//", "%", "tdiv", "tmod"):
                b.output(b.compute(f"by_{d}_{op}", (COUNT,), t, lambda i, d=d, op=op: binary(op, x[i], Const(d, t))))
    values = values_of(t, COUNT)
    values[values == t.min_value] = 5  # index arithmetic (i64) is taken not to overflow, and -(-2**63) would
    check(b.finish(), [values])


def test_index_arithmetic_over_loads() -> None:
    b = FuncBuilder("gather")
    x, at = b.input("x", (COUNT,), f32), b.input("at", (COUNT,), i32)
    index = lambda i: binary("%", cast(at[i], i64), const(COUNT))  # noqa: E731
    b.output(b.compute("y", (COUNT,), f32, lambda i: x[index(i)] + x[binary("//", i, const(3))]))
    check(b.finish(), [values_of(f32, COUNT), values_of(i32, COUNT)])


def test_shared_expressions_are_written_once() -> None:
    b = FuncBuilder("shared")
    x = b.input("x", (COUNT,), f32)

    def value(i):
        e = x[i]
        for _ in range(40):  # 2 to the 40 uses of the load
            e = (e + e) * const(0.5, f32)
        return e

    b.output(b.compute("y", (COUNT,), f32, value))
    check(b.finish(), [np.arange(COUNT, dtype=np.float32)])


def test_facts_of_a_select_stay_inside_it() -> None:
    n = Var("n")
    b = FuncBuilder("facts")
    x = b.input("x", (COUNT,), f32)
    b.scalar("n", i64)
    m = b.scalars[0]
    half = lambda i: binary("//", i - m, const(2))  # noqa: E731
    b.output(
        b.compute(
            "y", (COUNT,), f32, lambda i: select(ge(i - m, 0), x[half(i)], const(0.0, f32)) + cast(half(i), f32)
        )
    )
    check(b.finish(), [values_of(f32, COUNT)[::-1].copy()], (100,))
    assert n is not m


def test_select_never_loads_the_other_side() -> None:
    """The buffer is one element; every index but 0 is far outside, where reading would fault."""
    b = FuncBuilder("guarded")
    x, far = b.input("x", (1,), f32), b.scalar("far", i64)
    b.output(b.compute("y", (COUNT,), f32, lambda i: select(eq(i, 7), x[(i - 7) * far], const(-1.0, f32))))
    b.output(b.compute("z", (COUNT,), boolean, lambda i: logical_and(eq(i, 7), ge(x[(i - 7) * far], const(0.0, f32)))))
    func = b.finish()
    for variant in (func, wide(func, COUNT)):
        y, z = native(variant, [np.array([3.0], np.float32)], [1 << 40])
        assert y[7] == 3 and np.all(np.delete(y, 7) == -1)
        assert z[7] and not np.delete(z, 7).any()


def test_select_on_empty_buffers() -> None:
    n = Var("n")
    b = FuncBuilder("empty")
    x = b.input("x", (n,), f32)
    b.output(b.compute("y", (COUNT,), f32, lambda i: select(lt(i, n), x[i], const(2.0, f32))))
    check(b.finish(), [np.zeros(0, np.float32)], (0,))


def test_masked_stores_load_only_their_lanes() -> None:
    """A vector over the tail must not read beyond the array: it ends where its page ends."""
    import ctypes
    import mmap

    n = Var("n")
    b = FuncBuilder("tail")
    x = b.input("x", (n,), f32)
    y = b.buffer("y", (n,), f32)
    lanes = Var("v")
    body = lambda o: For(lanes, Const(16), If(lt(o * 16 + lanes, n), Store(y, (o * 16 + lanes,), x[o * 16 + lanes] + const(1.0, f32))), "vectorized")  # noqa: E731, E501
    b.block("tail", [("o", (n + 15) // 16, "spatial")], [y], body, reads=[x])
    b.output(y)
    page = mmap.PAGESIZE
    area = mmap.mmap(-1, 2 * page)
    base = np.frombuffer(area, np.uint8)
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(base.ctypes.data + page), page, mmap.PROT_READ & 0) == 0
    try:
        data = base[page - 5 * 4 : page].view(np.float32)
        data[:] = np.arange(5)
        from everport.codegen.llvm.jit import compile_and_load
        from everport.tir.lower import lower

        out = np.zeros(5, np.float32)
        compile_and_load(lower(b.finish()))(data, out, 5)
        assert np.array_equal(out, np.arange(5) + 1)
    finally:
        libc.mprotect(ctypes.c_void_p(base.ctypes.data + page), page, mmap.PROT_READ | mmap.PROT_WRITE)


def test_while_and_let() -> None:
    b = FuncBuilder("collatz")
    x, y = b.input("x", (COUNT,), i64), b.buffer("y", (COUNT,), i64)
    state = FuncBuilder("s").buffer("state", (1,), i64)

    def body(i):
        now, one = Load(state, (Const(0),)), Const(0)
        v = Var("v")
        following = select(eq(binary("%", v, const(2)), 0), binary("//", v, const(2)), v * 3 + 1)
        step = Let(v, now, seq(Store(state, (one,), following), Store(y, (i,), y[i] + 1)))
        return seq(Store(state, (one,), x[i]), Store(y, (i,), const(0)), While(binary(">", now, const(1)), step))

    b.block("collatz", [("i", COUNT, "opaque")], [y], body, reads=[x], allocs=[state])
    b.output(y)
    check(b.finish(), [np.arange(1, COUNT + 1)])


@pytest.mark.parametrize("count", [0, 1, 15, 16, 17, 100])
def test_parallel_loops_with_symbolic_extents(count: int) -> None:
    n = Var("n")
    b = FuncBuilder("parallel")
    x = b.input("x", (n, 3), f32)
    b.output(b.compute("y", (n, 3), f32, lambda i, j: x[i, j] * cast(i, f32)))
    func = b.finish()
    nest = func.root.body
    func = func.with_fields(body=func.root.with_fields(body=nest.with_fields(kind="parallel")))
    data = np.random.default_rng(0).standard_normal((count, 3)).astype(np.float32)
    assert np.array_equal(native(func, [data], [count])[0], (data * np.arange(count, dtype=np.float32)[:, None]).ravel())
