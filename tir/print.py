"""The script printer: TIR as Python syntax that tir/parse.py reads back to a structurally equal function.

Names are made unique. Integer literals are i64; other literals carry their type: f32(0.5), f32("nan"), u8(3), True.
"""

from __future__ import annotations

import math
from typing import Any

from everport.ir.dtype import DTYPES
from everport.tir.buffer import Buffer, Region
from everport.tir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    as_int,
)
from everport.tir.func import PrimFunc
from everport.tir.intrin import INTRINS
from everport.tir.stmt import Allocate, Block, Evaluate, For, If, Let, Seq, Stmt, Store, While

RESERVED = frozenset(
    ["and", "or", "not", "if", "else", "for", "while", "with", "as", "def", "return", "in", "pass", "True", "False", "None", "lambda", "min", "max", "select", "cast", "call", "ramp", "broadcast", "span", "block", "init", "where", "reads", "writes", "spatial", "reduce", "opaque", "alloc", "allocate", "let", "evaluate", "store", "annotate", "serial", "parallel", "vectorized", "unrolled", "thread", "neg", "tdiv", "tmod", "prim_func", "Buffer", "expr", "symbol", "const", "item", "call_tir", "match_cast", "attrs"]
)


class Names:
    """Unique printable names for variables and buffers."""

    def __init__(self) -> None:
        self.by_node: dict[Any, str] = {}
        self.taken: set[str] = set()

    def of(self, node: Any) -> str:
        found = self.by_node.get(node)
        if found is None:
            base = "".join(c if c.isalnum() or c == "_" else "_" for c in node.name) or "v"
            if base[0].isdigit():
                base = f"v{base}"
            found, number = base, 1
            while found in self.taken or found in RESERVED or found in _TYPE_NAMES:
                found, number = f"{base}_{number}", number + 1
            self.taken.add(found)
            self.by_node[node] = found
        return found


_TYPE_NAMES = frozenset(["boolean", *DTYPES])


def script(func: PrimFunc) -> str:
    """The text of a PrimFunc, scheduled or lowered."""
    return _Printer().func(func)


def print_expr(e: Expr, names: Names) -> str:
    """An expression in script syntax."""
    return _Printer(names).expr(e)


def print_value(value: Any, names: Names) -> str:
    """An attribute: a literal, an expression, or a tuple of these."""
    if isinstance(value, Expr):
        return f"expr({print_expr(value, names)})"
    if isinstance(value, tuple):
        return f"({', '.join(print_value(v, names) for v in value)}{',' if len(value) == 1 else ''})"
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    return repr(value)


class _Printer:
    def __init__(self, names: Names | None = None) -> None:
        self.names = names or Names()
        self.lines: list[str] = []

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def func(self, f: PrimFunc) -> str:
        for p in f.params:  # parameters keep their names
            self.names.of(p)
        params = []
        for p in f.params:
            if isinstance(p, Buffer):
                params.append(f"{self.names.of(p)}: {self.buffer_type(p)}")
            else:
                params.append(f"{self.names.of(p)}: {p.dtype}")
        attrs = ", ".join(f"{k}={print_value(v, self.names)}" for k, v in f.attrs)
        self.line(0, f"@prim_func({attrs})")
        self.line(0, f"def {f.name}({', '.join(params)}):")
        self.stmt(f.body, 1)
        return "\n".join(self.lines) + "\n"

    def buffer_type(self, b: Buffer) -> str:
        return f"Buffer({self.buffer_args(b)})"

    def buffer_args(self, b: Buffer) -> str:
        shape = f"({', '.join(self.expr(s) for s in b.shape)}{',' if b.rank == 1 else ''})"
        extra = ("" if b.scope == "global" else f", scope={b.scope!r}") + (f", align={b.align}" if b.align else "")
        return f"{shape}, {b.dtype}{extra}"

    def stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case Seq():
                if not s.stmts:
                    self.line(depth, "pass")
                for part in s.stmts:
                    self.stmt(part, depth)
            case Store():
                if s.mask is None:
                    self.line(depth, f"{self.names.of(s.buffer)}[{self.indices(s.indices)}] = {self.expr(s.value)}")
                else:
                    args = f"{self.names.of(s.buffer)}, ({self.indices(s.indices)},), {self.expr(s.value)}, {self.expr(s.mask)}"
                    self.line(depth, f"store({args})")
            case For():
                args = [self.expr(s.extent)]
                if s.thread is not None:
                    args.append(repr(s.thread))
                if s.annotations:
                    args.append(f"notes={dict(s.annotations)!r}")
                self.line(depth, f"for {self.names.of(s.var)} in {s.kind}({', '.join(args)}):")
                self.stmt(s.body, depth + 1)
            case If():
                self.line(depth, f"if {self.expr(s.cond)}:")
                self.stmt(s.then, depth + 1)
                if s.otherwise is not None:
                    self.line(depth, "else:")
                    self.stmt(s.otherwise, depth + 1)
            case While():
                self.line(depth, f"while {self.expr(s.cond)}:")
                self.stmt(s.body, depth + 1)
            case Let():
                value = self.expr(s.value)
                self.line(depth, f"with let({value}, {s.var.dtype}) as {self.names.of(s.var)}:")
                self.stmt(s.body, depth + 1)
            case Evaluate():
                self.line(depth, f"evaluate({self.expr(s.value)})")
            case Allocate():
                self.line(depth, f"with allocate({self.buffer_args(s.buffer)}) as {self.names.of(s.buffer)}:")
                self.stmt(s.body, depth + 1)
            case Block():
                self.block(s, depth)
            case _:
                raise TypeError(f"not a statement: {type(s).__name__}")

    def block(self, b: Block, depth: int) -> None:
        self.line(depth, f"with block({b.name!r}):")
        inner = depth + 1
        for it, binding in zip(b.iters, b.bindings, strict=True):
            bound = self.expr(binding)
            self.line(inner, f"{self.names.of(it.var)} = {it.kind}({self.expr(it.extent)}, {bound})")
        if not (isinstance(b.predicate, Const) and b.predicate.value):
            self.line(inner, f"where({self.expr(b.predicate)})")
        for buffer in b.allocs:
            args = self.buffer_args(buffer)
            self.line(inner, f"{self.names.of(buffer)} = alloc({args})")
        if b.reads:
            self.line(inner, f"reads({', '.join(map(self.region, b.reads))})")
        if b.writes:
            self.line(inner, f"writes({', '.join(map(self.region, b.writes))})")
        for name, value in b.annotations:
            self.line(inner, f"annotate({name!r}, {value!r})")
        if b.init is not None:
            self.line(inner, "with init():")
            self.stmt(b.init, inner + 1)
        self.stmt(b.body, inner)

    def region(self, r: Region) -> str:
        parts = []
        for x in r.ranges:
            parts.append(self.expr(x.min) if as_int(x.extent) == 1 else f"span({self.expr(x.min)}, {self.expr(x.extent)})")
        return f"{self.names.of(r.buffer)}[{', '.join(parts) or '()'}]"

    def indices(self, indices: tuple[Expr, ...]) -> str:
        return ", ".join(self.expr(i) for i in indices) or "()"

    def expr(self, e: Expr) -> str:
        match e:
            case Var():
                return self.names.of(e)
            case Const():
                return literal(e)
            case Binary() if e.op in ("min", "max", "tdiv", "tmod"):
                return f"{e.op}({self.expr(e.a)}, {self.expr(e.b)})"
            case Binary():
                return f"({self.expr(e.a)} {e.op} {self.expr(e.b)})"
            case Unary():
                return {"neg": "neg({})", "not": "(not {})", "~": "(~{})"}[e.op].format(self.expr(e.a))
            case Select():
                return f"select({self.expr(e.cond)}, {self.expr(e.a)}, {self.expr(e.b)})"
            case Cast():
                return f"cast({self.expr(e.a)}, {e.dtype})"
            case Call():
                args = "".join(f", {self.expr(a)}" for a in e.args)
                row = INTRINS.get(e.name)
                usual = row is not None and e.args and row.result == "same" and e.dtype == e.args[0].dtype
                return f"call({e.name!r}{args}{'' if usual else f', dtype={e.dtype}'})"
            case Load():
                return f"{self.names.of(e.buffer)}[{self.indices(e.indices)}]"
            case Ramp():
                return f"ramp({self.expr(e.base)}, {self.expr(e.stride)}, {e.lanes})"
            case Broadcast():
                return f"broadcast({self.expr(e.a)}, {e.lanes})"
        raise TypeError(f"not an expression: {type(e).__name__}")


def literal(e: Const) -> str:
    """A constant that reads back to the same bits."""
    if e.dtype.is_bool:
        return str(bool(e.value))
    if e.dtype.is_float:
        value = repr(e.value) if math.isfinite(e.value) else repr(str(e.value))
        return f"{e.dtype}({value})"
    return str(e.value) if e.dtype.name == "i64" else f"{e.dtype}({e.value})"
