"""The script printer of Relax: functions and whole modules as Python syntax that relax/parse.py reads back.

Shape symbols are declared first (`n = symbol()`). Constants of up to 16 elements stand in the text; larger ones are named by
content hash, and the parser is given the arrays.
"""

from __future__ import annotations

import hashlib

import numpy as np

from everport.ir.dtype import from_numpy
from everport.ir.module import IRModule
from everport.ir.node import Node
from everport.relax.expr import (
    Binding,
    Call,
    CallTIR,
    Constant,
    Function,
    MatchCast,
    RelaxExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from everport.relax.struct_info import PrimInfo, ShapeInfo, StructInfo, TensorInfo, TupleInfo
from everport.tir.expr import free_vars
from everport.tir.func import PrimFunc
from everport.tir.print import Names, print_expr, print_value
from everport.tir.print import script as tir_script

INLINE = 16


def constant_hash(data: np.ndarray) -> str:
    """The name of a large constant: a hash of its type, shape and bytes."""
    seed = f"{data.dtype}{data.shape}".encode()
    return hashlib.sha256(seed + data.tobytes()).hexdigest()[:24]


def constants_of(source: IRModule | Function) -> dict[str, np.ndarray]:
    """The arrays of large constants by hash, for the parser."""
    functions = [source] if isinstance(source, Function) else list(source.of_type(Function).values())
    found = {}
    for f in functions:
        values: list[RelaxExpr] = [*(b.value for b in f.bindings), *f.results]
        for value in values:
            for item in (value, *getattr(value, "args", ()), *getattr(value, "fields", ())):
                if isinstance(item, Constant) and item.data.size > INLINE:
                    found[constant_hash(item.data)] = item.data
    return found


def script(source: IRModule | Function) -> str:
    """The text of a function, or of all functions of a module (PrimFuncs in TIR's script)."""
    if isinstance(source, Function):
        return _Printer(source).text()
    parts = []
    for f in source.functions.values():
        parts.append(_Printer(f).text() if isinstance(f, Function) else tir_script(f) if isinstance(f, PrimFunc) else "")
    return "\n".join(parts)


class _Printer:
    def __init__(self, f: Function) -> None:
        self.f = f
        self.names = Names()
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append("    " + text)

    def text(self) -> str:
        f = self.f
        for p in f.params:
            self.names.of(p)
        params = ", ".join(f"{self.names.of(p)}: {self.info(p.info)}" for p in f.params)
        roots: list[Node] = [f]
        symbols = free_vars(roots)
        declared = "".join(f"    {self.names.of(s)} = symbol()\n" for s in symbols)
        attrs = ", ".join(f"{k}={print_value(v, self.names)}" for k, v in f.attrs)
        for b in f.bindings:
            self.binding(b)
        self.line(f"return {self.value(f.result)}")
        head = f"def {f.name}({params}):\n"
        return head + declared + (f"    attrs({attrs})\n" if attrs else "") + "\n".join(self.lines) + "\n"

    def binding(self, b: Binding | MatchCast) -> None:
        if isinstance(b, MatchCast):
            defines = "".join(f", {self.names.of(d)}" for d in b.defines)
            value = f"match_cast({self.value(b.value)}{defines})"
        else:
            value = self.value(b.value)
        self.line(f"{self.names.of(b.var)}: {self.info(b.var.info)} = {value}")

    def info(self, info: StructInfo) -> str:
        match info:
            case TensorInfo():
                return f"Tensor({self.shape(info.shape)}, {info.dtype})"
            case ShapeInfo():
                return f"Shape({self.shape(info.values)})"
            case PrimInfo():
                return f"Prim({info.dtype})"
            case TupleInfo():
                return f"Tuple({', '.join(map(self.info, info.fields))})"
        raise TypeError(f"cannot print {info}")

    def shape(self, shape: tuple) -> str:
        return f"({', '.join(print_expr(d, self.names) for d in shape)}{',' if len(shape) == 1 else ''})"

    def value(self, v: RelaxExpr) -> str:
        match v:
            case Var():
                return self.names.of(v)
            case Constant():
                return self.constant(v)
            case Tuple():
                return f"({', '.join(map(self.value, v.fields))}{',' if len(v.fields) == 1 else ''})"
            case TupleGetItem():
                return f"item({self.value(v.value)}, {v.index})"
            case Call():
                args = [self.value(a) for a in v.args] + [f"{k}={print_value(a, self.names)}" for k, a in v.attrs]
                return f"{v.op}({', '.join(args)})"
            case CallTIR():
                args = f"({', '.join(map(self.value, v.args))}{',' if len(v.args) == 1 else ''})"
                ints = f", ints={self.shape(v.ints)}" if v.ints else ""
                return f"call_tir({v.func!r}, {args}{ints})"
        raise TypeError(f"cannot print {v}")

    def constant(self, c: Constant) -> str:
        name = f", name={c.name!r}" if c.name else ""
        if c.data.size > INLINE:
            return f"const({constant_hash(c.data)!r}{name})"
        kind = from_numpy(c.data.dtype)
        # Bytes as hexadecimal: exact for every type.
        return f"const({kind}, {tuple(c.data.shape)!r}, {c.data.tobytes().hex()!r}{name})"



