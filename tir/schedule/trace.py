"""Traces: a schedule as data that prints, parses and replays.

One line an instruction: `l3, l4 = split(l0, (None, 16))`. A loop that no earlier instruction gave is introduced by a line
`l0, l1 = get_loops("block")`. Strings name blocks, buffers, scopes and thread axes.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everport.ir.errors import ParseError, ScheduleError
from everport.ir.span import Span
from everport.tir.arith import IndexMap
from everport.tir.expr import Binary, Const, Expr, Select, Unary, Var, as_int, binary, select, unary
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import loops_above, outer_blocks

if TYPE_CHECKING:
    from everport.tir.schedule.schedule import Schedule


@dataclass(frozen=True, slots=True)
class Instruction:
    """A primitive, its arguments, and what it gave (None, a loop, a name, or a tuple of loops)."""

    primitive: str
    args: tuple[Any, ...]
    outcome: Any = None


@dataclass(slots=True)
class Trace:
    """Lines of text-like instructions: each is (result names, primitive, arguments with loops as names)."""

    lines: list[tuple[tuple[str, ...], str, tuple[Any, ...]]] = field(default_factory=list)
    _names: dict[Var, str] = field(default_factory=dict)

    def add(self, instruction: Instruction, before: PrimFunc) -> None:
        """Records an instruction; `before` is the function it was applied to."""
        for loop in _loops_in(instruction.args, before):
            if loop not in self._names:
                self._introduce(loop, before)
        args = tuple(self._named(a, before) for a in instruction.args)
        outcome = instruction.outcome
        made = outcome if isinstance(outcome, tuple) else (outcome,) if isinstance(outcome, Var) else ()
        names = []
        for loop in made:
            self._names[loop] = f"l{len(self._names)}" if loop not in self._names else self._names[loop]
            names.append(self._names[loop])
        self.lines.append((tuple(names), instruction.primitive, args))

    def _introduce(self, loop: Var, func: PrimFunc) -> None:
        for block in outer_blocks(func.root.body):
            loops = [f.var for f in loops_above(func, block.name)]
            if loop in loops:
                names = []
                for v in loops:
                    self._names.setdefault(v, f"l{len(self._names)}")
                    names.append(self._names[v])
                self.lines.append((tuple(names), "get_loops", (block.name,)))
                return
        raise ScheduleError(f"loop {loop.name!r} is not around any block")

    def _named(self, value: Any, func: PrimFunc) -> Any:
        if isinstance(value, Var) and value in self._names:
            return _Name(self._names[value])
        if isinstance(value, Expr):
            return _Code(_expr_text(value, {s: s.name for s in func.scalars}))
        if isinstance(value, IndexMap):
            names = {v: f"d{k}" for k, v in enumerate(value.initial)}
            body = ", ".join(_expr_text(e, names) for e in value.final)
            return _Code(f"index_map(lambda {', '.join(names.values())}: ({body},))")
        if isinstance(value, (tuple, list)):
            return tuple(self._named(v, func) for v in value)
        return value

    def script(self) -> str:
        """The text; empty for nothing."""
        lines = []
        for names, primitive, args in self.lines:
            left = ", ".join(names) + ("," if len(names) == 1 and primitive in ("split", "get_loops") else "")
            right = f"{primitive}({', '.join(_text(a) for a in args)})"
            lines.append(f"{left} = {right}" if names else right)
        return "\n".join(lines) + ("\n" if lines else "")

    def apply(self, func: PrimFunc, schedule: type[Schedule]) -> PrimFunc:
        """Replays the trace on a function of the same structure."""
        sch = schedule(func)
        loops: dict[str, Var] = {}
        for names, primitive, args in self.lines:
            if primitive == "get_loops":
                loops.update(zip(names, sch.get_loops(args[0]), strict=True))
                continue
            outcome = sch.apply(primitive, *(_resolved(a, loops, sch.func) for a in args))
            made = outcome if isinstance(outcome, tuple) else (outcome,)
            loops.update((n, v) for n, v in zip(names, made, strict=False) if isinstance(v, Var))
        return sch.func


@dataclass(frozen=True, slots=True)
class _Name:
    """A loop by its name in the trace."""

    text: str


@dataclass(frozen=True, slots=True)
class _Code:
    """An expression or index map as text."""

    text: str


def _text(value: Any) -> str:
    if isinstance(value, (_Name, _Code)):
        return value.text
    if isinstance(value, tuple):
        return f"({', '.join(_text(v) for v in value)}{',' if len(value) == 1 else ''})"
    return repr(value)


def _loops_in(args: Sequence[Any], func: PrimFunc) -> list[Var]:
    found: list[Var] = []
    for a in args:
        if isinstance(a, Var) and a not in func.scalars:
            found.append(a)
        elif isinstance(a, (tuple, list)):
            found += _loops_in(a, func)
    return found


def _expr_text(e: Expr, names: dict[Var, str]) -> str:
    match e:
        case Const():
            return str(e.value)
        case Var():
            return names.get(e, e.name)
        case Binary() if e.op in ("min", "max"):
            return f"{e.op}({_expr_text(e.a, names)}, {_expr_text(e.b, names)})"
        case Binary():
            return f"({_expr_text(e.a, names)} {e.op} {_expr_text(e.b, names)})"
        case Unary():
            return f"(-{_expr_text(e.a, names)})" if e.op == "neg" else f"({e.op} {_expr_text(e.a, names)})"
        case Select():
            return f"({_expr_text(e.a, names)} if {_expr_text(e.cond, names)} else {_expr_text(e.b, names)})"
    raise ScheduleError(f"{e} cannot stand in a trace")


def _resolved(value: Any, loops: dict[str, Var], func: PrimFunc) -> Any:
    if isinstance(value, _Name):
        if value.text not in loops:
            raise ScheduleError(f"the trace uses {value.text!r} before it is made")
        return loops[value.text]
    if isinstance(value, _Code):
        node = ast.parse(value.text, mode="eval").body
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "index_map":
            function = node.args[0]
            assert isinstance(function, ast.Lambda) and isinstance(function.body, ast.Tuple)
            variables = tuple(Var(a.arg) for a in function.args.args)
            names = {v.name: v for v in variables}
            return IndexMap(variables, tuple(_expr_of(e, names) for e in function.body.elts))
        e = _expr_of(node, {s.name: s for s in func.scalars})
        known = as_int(e)
        return e if known is None else known
    return tuple(_resolved(v, loops, func) for v in value) if isinstance(value, tuple) else value


_OPS: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "//", ast.Mod: "%", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def _expr_of(node: ast.expr, names: dict[str, Var]) -> Expr:
    match node:
        case ast.Constant(value=int()):
            return Const(node.value)  # type: ignore[arg-type]
        case ast.Name():
            if node.id not in names:
                raise ParseError(f"the trace uses the unknown symbol {node.id!r}")
            return names[node.id]
        case ast.BinOp():
            return binary(_OPS[type(node.op)], _expr_of(node.left, names), _expr_of(node.right, names))
        case ast.Compare():
            return binary(_OPS[type(node.ops[0])], _expr_of(node.left, names), _expr_of(node.comparators[0], names))
        case ast.UnaryOp(op=ast.USub()):
            return unary("neg", _expr_of(node.operand, names))
        case ast.IfExp():
            return select(_expr_of(node.test, names), _expr_of(node.body, names), _expr_of(node.orelse, names))
        case ast.Call(func=ast.Name(id="min" | "max")):
            return binary(node.func.id, _expr_of(node.args[0], names), _expr_of(node.args[1], names))  # type: ignore[attr-defined]
    raise ParseError(f"cannot read {ast.unparse(node)!r} in a trace")


def parse_trace(text: str) -> Trace:
    """Reads what `Trace.script` wrote; a ParseError names the line."""
    trace = Trace()
    try:
        module = ast.parse(text)
    except SyntaxError as error:
        raise ParseError(f"the trace is not valid: {error.msg}", span=Span("trace", error.lineno)) from None
    for statement in module.body:
        names: tuple[str, ...] = ()
        value = statement.value if isinstance(statement, (ast.Expr, ast.Assign)) else None
        if isinstance(statement, ast.Assign):
            target = statement.targets[0]
            parts = target.elts if isinstance(target, ast.Tuple) else [target]
            names = tuple(p.id for p in parts if isinstance(p, ast.Name))
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Name):
            raise ParseError("a line of a trace is a call", span=Span("trace", statement.lineno))
        trace.lines.append((names, value.func.id, tuple(_argument(a) for a in value.args)))
    return trace


def _argument(node: ast.expr) -> Any:
    if isinstance(node, ast.Name) and node.id[:1] == "l" and node.id[1:].isdigit():
        return _Name(node.id)
    if isinstance(node, ast.Tuple):
        return tuple(_argument(e) for e in node.elts)
    if isinstance(node, ast.Constant):
        return node.value
    return _Code(ast.unparse(node))
