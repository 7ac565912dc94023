"""Builder: emits operator calls as bindings, inferring struct info on the way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from everport.ir.errors import CompileError
from everport.ir.span import Span
from everport.relax.expr import (
    Attrs,
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
    make_attrs,
)
from everport.relax.op import OPS, InferContext
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.expr import Expr, free_vars
from everport.tir.expr import Var as TirVar


def infer_call(ctx: InferContext, op: str, args: Sequence[RelaxExpr], attrs: Attrs, span: Span | None = None) -> StructInfo:
    """The struct info of an operator call; errors carry the span."""
    if op not in OPS:
        raise CompileError(f"unknown operator {op!r}", span=span)
    infos = [a.info for a in args]
    for position, info in enumerate(infos):
        if not isinstance(info, TensorInfo):
            raise CompileError(f"argument {position} of {op} is not a tensor but {info}", span=span)
    try:
        return OPS[op].infer(ctx, infos, dict(attrs))  # type: ignore[arg-type]
    except CompileError as error:
        if error.span is None:
            error.span = span
        raise


class Builder:
    """Builds a Function in A-normal form. Shape symbols of parameters are bound to >= 1 unless `bind_symbol` says otherwise."""

    def __init__(self, name: str = "main") -> None:
        self.name = name
        self.params: list[Var] = []
        self.bindings: list[Binding | MatchCast] = []
        self.ctx = InferContext()
        self.span: Span | None = None
        self._ranges: dict[TirVar, tuple[int, int | None, int]] = {}
        self._names: dict[str, int] = {}

    def bind_symbol(self, symbol: TirVar, lo: int = 1, hi: int | None = None, divisor: int = 1) -> None:
        """States the range (inclusive) of a shape symbol and what divides it."""
        self._ranges[symbol] = (lo, hi, divisor)
        self.ctx.analyzer.bind(symbol, lo, hi)

    def param(self, name: str, info: StructInfo) -> Var:
        """A parameter; its new symbols are bound to >= 1."""
        for symbol in free_vars(info):
            if symbol not in self._ranges:
                self.bind_symbol(symbol)
        var = Var(self.unique(name), info)
        self.params.append(var)
        return var

    def unique(self, name: str) -> str:
        """`name` made an identifier-like unique name."""
        base = "".join(c if c.isalnum() or c == "_" else "_" for c in name) or "v"
        if base[0].isdigit():
            base = "v" + base
        count = self._names.get(base, 0)
        self._names[base] = count + 1
        if count == 0:
            return base
        return self.unique(f"{base}_{count}")

    @contextmanager
    def at(self, span: Span | None) -> Iterator[None]:
        """Bindings emitted inside carry `span`."""
        before, self.span = self.span, span
        try:
            yield
        finally:
            self.span = before

    def emit(self, op: str, *args: RelaxExpr, name: str | None = None, **attrs: Any) -> Var:
        """Binds a new variable to an operator call."""
        frozen = make_attrs(attrs)
        info = infer_call(self.ctx, op, args, frozen, self.span)
        return self.bind(Call(op, tuple(args), frozen, info), name or op)

    def emit_many(self, op: str, *args: RelaxExpr, name: str | None = None, **attrs: Any) -> tuple[Var, ...]:
        """Binds an operator call with several results and each of its fields."""
        whole = self.emit(op, *args, name=name, **attrs)
        if not isinstance(whole.info, TupleInfo):
            return (whole,)
        return tuple(self.bind(TupleGetItem(whole, k), f"{name or op}_{k}") for k in range(len(whole.info.fields)))

    def call_tir(
        self, func: str, args: Sequence[RelaxExpr], info: StructInfo, ints: Sequence[Expr] = (), name: str | None = None
    ) -> Var:
        """Binds a call of a PrimFunc of the module."""
        return self.bind(CallTIR(func, tuple(args), tuple(ints), info), name or func)

    def bind(self, value: RelaxExpr, name: str = "v") -> Var:
        """Binds a new variable to any value."""
        var = Var(self.unique(name), value.info)
        self.bindings.append(Binding(var, value, self.span))
        return var

    def match_cast(self, value: RelaxExpr, info: TensorInfo, name: str = "v") -> Var:
        """Asserts `info` at run time; its unknown symbols are bound by it."""
        defines = tuple(s for s in free_vars(info) if s not in self._ranges)
        for symbol in defines:
            self.bind_symbol(symbol, 0)
        var = Var(self.unique(name), info)
        self.bindings.append(MatchCast(var, value, defines, self.span))
        return var

    def finish(self, results: Sequence[RelaxExpr], output_names: Sequence[str] | None = None, **attrs: Any) -> Function:
        """The function. A single result stands alone, several form a tuple. Constraints become the attribute "constraints"
        (a, b, reason): equalities that the host program checks on every run."""
        for result in results:
            if not isinstance(result, (Var, Constant)):
                raise TypeError(f"a result must be a variable or a constant, not {result}")
        ranges = tuple((s, *self._ranges[s]) for s in self._ranges)
        values: dict[str, Any] = {"dim_ranges": ranges or None, "constraints": tuple(self.ctx.constraints) or None, **attrs}
        if output_names is not None:
            values["output_names"] = tuple(output_names)
        result = results[0] if len(results) == 1 else Tuple(tuple(results))
        return Function(self.name, tuple(self.params), tuple(self.bindings), result, make_attrs(values))
