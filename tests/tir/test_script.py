"""TIR scripts read back to structurally equal functions, at every stage; errors show the place."""

from __future__ import annotations

import math

import pytest

from everport.ir.dtype import DTYPES, boolean, f32, i64, u8
from everport.ir.errors import ParseError, VerifyError
from everport.ir.node import structural_equal
from everport.targets import parse_target
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Binary, Broadcast, Cast, Const, Load, Ramp, Select, Unary, Var, const, lt, maximum
from everport.tir.func import PrimFunc
from everport.tir.intrin import call
from everport.tir.lower import lower
from everport.tir.parse import parse_func
from everport.tir.print import script
from everport.tir.rules import schedule
from everport.tir.stmt import Allocate, Evaluate, For, If, Let, Seq, Store, While, seq
from everport.tir.verify import verify

n = Var("n")


def softmax() -> PrimFunc:
    b = FuncBuilder("softmax", kind="reduction")
    x = b.input("x", (n, 64), f32)
    top = b.reduce("top", (n,), (64,), f32, "max", lambda i, k: x[i, k])
    powers = b.compute("powers", (n, 64), f32, lambda i, j: call("exp", x[i, j] - top[i]))
    total = b.reduce("total", (n,), (64,), f32, "sum", lambda i, k: powers[i, k])
    b.output(b.compute("y", (n, 64), f32, lambda i, j: powers[i, j] / total[i]))
    return b.finish()


def matmul() -> PrimFunc:
    b = FuncBuilder("matmul")
    x, w = b.input("x", (n, 48), f32), b.input("w", (48, 40), f32)
    t = b.reduce("t", (n, 40), (48,), f32, "sum", lambda i, j, k: x[i, k] * w[k, j])
    b.output(b.compute("y", (n, 40), f32, lambda i, j: maximum(t[i, j], const(0, f32))))
    return b.finish()


def same(func: PrimFunc) -> None:
    text = script(func)
    again = parse_func(text)
    assert structural_equal(func, again), text
    assert script(again) == text


@pytest.mark.parametrize("make", [softmax, matmul])
def test_every_stage_reads_back(make) -> None:  # noqa: ANN001
    func = make()
    planned = schedule(func, parse_target("cpu:x86-64-v3"))
    for stage in (func, planned, lower(func), lower(planned)):
        verify(stage)
        same(stage)


def test_every_construct_reads_back() -> None:
    x, y = Buffer("x", (n,), f32, align=64), Buffer("x", (Const(4),), u8)
    i, j, k = Var("i"), Var("i"), Var("t", f32)
    local = Buffer("in", (Const(8),), f32, "register", 64)
    statements = seq(
        For(i, n, Store(x, (i,), x[i] + Const(math.nan, f32)), "thread", "threadIdx.x", (("note", 3),)),
        For(j, n, If(lt(j, n), Store(x, (j,), Const(-0.0, f32)), Store(x, (j,), Const(math.inf, f32))), "parallel"),
        Let(k, x[Const(0)], Store(x, (Const(1),), Select(lt(x[Const(2)], k), k, Unary("neg", k)))),
        Allocate(local, Store(local, (Ramp(Const(0), Const(1), 8),), Broadcast(x[Const(0)], 8), Broadcast(Const(1, boolean), 8))),
        While(Unary("not", lt(x[Const(0)], const(3, f32))), Store(x, (Const(0),), call("fma", x[Const(0)], x[Const(1)], x[Const(2)]))),
        Store(y, (Const(0),), Binary("^", Unary("~", y[Const(1)]), Cast(n, u8))),
        Evaluate(Binary("tdiv", n, Const(-3))),
        If(call("isnan", x[Const(0)]), Seq(())),
    )
    same(PrimFunc("everything", (x, y, n), statements, (("flops", n * 2), ("names", ("a", "b")), ("stage", "device"))))


@pytest.mark.parametrize("name", DTYPES)
def test_constants_of_every_type(name: str) -> None:
    t = DTYPES[name]
    b = Buffer("b", (Const(1),), t)
    same(PrimFunc("f", (b,), Store(b, (Const(0),), Const(1, t))))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("x[0] = z", "'z' is no known var"),
        ("for i in range(4):\n        pass", "a loop runs over one of"),
        ("x[0] = f32(1.0) + 1", "differ in type"),
        ("x[0] = call('sine', f32(1.0))", "no intrinsic 'sine'"),
        ("import os", "no statement of TIR"),
        ("x[0] = (", "not valid syntax"),
    ],
)
def test_errors_show_the_place(line: str, message: str) -> None:
    with pytest.raises(ParseError, match=message) as caught:
        parse_func(f"@prim_func()\ndef f(x: Buffer((4,), f32)):\n    {line}\n")
    assert "^" in str(caught.value)


def test_verifier_names_the_rule() -> None:
    b = Buffer("b", (Const(4), Const(4)), f32)
    stray = Var("stray", i64)
    with pytest.raises(VerifyError, match="index ranks"):
        verify(PrimFunc("f", (b,), Store(b, (Const(0),), Const(0, f32))))
    with pytest.raises(VerifyError, match="'stray' is used where it is not defined"):
        verify(PrimFunc("f", (b,), Store(b, (stray, stray), Const(0, f32))))
    other = Buffer("other", (Const(1),), f32)
    with pytest.raises(VerifyError, match="neither a parameter nor allocated"):
        verify(PrimFunc("f", (b,), Store(b, (Const(0), Const(0)), Load(other, (Const(0),)))))
