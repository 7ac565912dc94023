"""The script parser: reads what tir/print.py writes, by Python's own syntax tree; nothing is executed."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any, NoReturn

from everport.ir.dtype import DTYPES, DType, boolean
from everport.ir.errors import ParseError
from everport.ir.span import Span
from everport.tir.buffer import Buffer, Range, Region
from everport.tir.expr import Binary, Broadcast, Call, Cast, Const, Expr, Load, Ramp, Select, Unary, Var
from everport.tir.func import PrimFunc
from everport.tir.intrin import INTRINS
from everport.tir.stmt import (
    ITER_KINDS,
    LOOP_KINDS,
    TRUE,
    Allocate,
    Block,
    Evaluate,
    For,
    If,
    IterVar,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)

BINARY: dict[type, str] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&",
    ast.BitOr: "|", ast.BitXor: "^", ast.LShift: "<<", ast.RShift: ">>", ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<",
    ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip


def parse_func(text: str, source: str = "text") -> PrimFunc:
    """One PrimFunc; a ParseError shows the place."""
    tree = syntax_tree(text, source)
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.FunctionDef):
        raise ParseError("the text must be one function", span=Span(source))
    return read_func(tree.body[0], text, source)


def syntax_tree(text: str, source: str) -> ast.Module:
    """Python's syntax tree; a ParseError shows where the text is no Python."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        line = (error.lineno or 1) - 1
        lines = text.splitlines()
        shown = lines[line] if line < len(lines) else ""
        place = Span(source, error.lineno, (error.offset or 1) - 1)
        raise ParseError(f"not valid syntax: {error.msg}", span=place, excerpt=shown, caret=(0, (error.offset or 1) - 1, 1)) from None


def read_func(node: ast.FunctionDef, text: str, source: str) -> PrimFunc:
    """A PrimFunc from its syntax tree."""
    return _Parser(text, source).func(node)


class Reader:
    """What the parsers of both levels share: places, names, values and expressions."""

    def __init__(self, text: str, source: str) -> None:
        self.lines = text.splitlines()
        self.source = source
        self.names: dict[str, Any] = {}

    def fail(self, message: str, node: ast.AST) -> NoReturn:
        line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
        shown = self.lines[line - 1] if line <= len(self.lines) else ""
        width = (getattr(node, "end_col_offset", column + 1) or column + 1) - column
        raise ParseError(message, span=Span(self.source, line, column), excerpt=shown, caret=(0, column, max(1, width)))

    def look_up(self, name: str, kind: type, node: ast.AST) -> Any:
        found = self.names.get(name)
        if not isinstance(found, kind):
            self.fail(f"{name!r} is no known {kind.__name__.lower()}", node)
        return found

    def dtype(self, node: ast.expr) -> DType:
        if not isinstance(node, ast.Name) or node.id not in DTYPES:
            self.fail("a data type is expected", node)
        return DTYPES[node.id]

    def text_of(self, node: ast.expr) -> str:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
            self.fail("a string is expected", node)
        return node.value

    def integer(self, node: ast.expr) -> int:
        if not isinstance(node, ast.Constant) or not isinstance(node.value, int):
            self.fail("an integer is expected", node)
        return node.value

    def literal(self, node: ast.expr) -> Any:
        try:
            return ast.literal_eval(node)
        except ValueError:
            self.fail("a literal is expected", node)

    def value(self, node: ast.expr) -> Any:
        """An attribute: expr(...), a literal, or a tuple of these."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "expr":
            return self.expr(node.args[0])
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "float":
            return float(self.text_of(node.args[0]))
        if isinstance(node, ast.Tuple):
            return tuple(self.value(e) for e in node.elts)
        return self.literal(node)

    def exprs(self, node: ast.expr) -> tuple[Expr, ...]:
        """A tuple of expressions, or one as an index."""
        if isinstance(node, ast.Tuple):
            return tuple(self.expr(e) for e in node.elts)
        return (self.expr(node),)

    def expr(self, node: ast.expr) -> Expr:
        try:
            return self._expr(node)
        except (TypeError, ValueError) as error:
            self.fail(str(error), node)

    def _expr(self, node: ast.expr) -> Expr:
        match node:
            case ast.Constant(value=bool()):
                return Const(int(node.value), boolean)  # type: ignore[arg-type]
            case ast.Constant(value=int()):
                return Const(node.value)  # type: ignore[arg-type]
            case ast.Name():
                return self.look_up(node.id, Var, node)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int())):
                return Const(-node.operand.value)  # type: ignore[attr-defined,operator]
            case ast.UnaryOp(op=ast.Not()):
                return Unary("not", self.expr(node.operand))
            case ast.UnaryOp(op=ast.Invert()):
                return Unary("~", self.expr(node.operand))
            case ast.BinOp():
                return Binary(BINARY[type(node.op)], self.expr(node.left), self.expr(node.right))
            case ast.Compare() if len(node.ops) == 1:
                return Binary(BINARY[type(node.ops[0])], self.expr(node.left), self.expr(node.comparators[0]))
            case ast.BoolOp() if len(node.values) == 2:
                op = "and" if isinstance(node.op, ast.And) else "or"
                return Binary(op, self.expr(node.values[0]), self.expr(node.values[1]))
            case ast.Subscript(value=ast.Name()):
                return Load(self.look_up(node.value.id, Buffer, node), self.exprs(node.slice))  # type: ignore[attr-defined]
            case ast.Call(func=ast.Name()):
                return self.call(node, node.func.id)  # type: ignore[attr-defined]
        self.fail(f"cannot read the expression {ast.unparse(node)}", node)

    def call(self, node: ast.Call, name: str) -> Expr:
        args = node.args
        if name in DTYPES:
            return self.typed(node, DTYPES[name])
        if name in ("min", "max", "tdiv", "tmod"):
            return Binary(name, self.expr(args[0]), self.expr(args[1]))
        if name == "neg":
            return Unary("neg", self.expr(args[0]))
        if name == "select":
            return Select(self.expr(args[0]), self.expr(args[1]), self.expr(args[2]))
        if name == "cast":
            return Cast(self.expr(args[0]), self.dtype(args[1]))
        if name == "ramp":
            return Ramp(self.expr(args[0]), self.expr(args[1]), self.integer(args[2]))
        if name == "broadcast":
            return Broadcast(self.expr(args[0]), self.integer(args[1]))
        if name == "call":
            intrinsic = self.text_of(args[0])
            if intrinsic not in INTRINS:
                self.fail(f"there is no intrinsic {intrinsic!r}", args[0])
            values = tuple(self.expr(a) for a in args[1:])
            given = next((self.dtype(k.value) for k in node.keywords if k.arg == "dtype"), None)
            return Call(intrinsic, values, given or values[0].dtype)
        self.fail(f"there is no operation {name!r}", node)

    def typed(self, node: ast.Call, t: DType) -> Const:
        """f32(0.5), f32("nan"), u8(3)."""
        value = node.args[0]
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return Const(float(value.value), t)
        number = self.literal(value)
        if not isinstance(number, (int, float)):
            self.fail("a number is expected", value)
        return Const(number, t)


class _Parser(Reader):
    def func(self, node: ast.FunctionDef) -> PrimFunc:
        attrs: dict[str, Any] = {}
        params: list[Buffer | Var] = []
        annotated = [(a.arg, a.annotation) for a in node.args.args]
        for name, kind in annotated:
            if isinstance(kind, ast.Name):
                self.names[name] = Var(name, self.dtype(kind))
        for name, kind in annotated:
            if isinstance(kind, ast.Call):
                self.names[name] = self.buffer(name, kind)
            params.append(self.names[name])
        for decorator in node.decorator_list:
            if not isinstance(decorator, ast.Call):
                self.fail("the decorator is prim_func(...)", decorator)
            for keyword in decorator.keywords:
                attrs[keyword.arg or ""] = self.value(keyword.value)
        return PrimFunc(node.name, tuple(params), self.body(node.body), tuple(sorted(attrs.items())))

    def buffer(self, name: str, node: ast.Call) -> Buffer:
        options = {k.arg: self.literal(k.value) for k in node.keywords}
        if len(node.args) != 2:
            self.fail("a buffer has a shape and a type", node)
        return Buffer(name, self.exprs(node.args[0]), self.dtype(node.args[1]), options.get("scope", "global"), options.get("align", 0))

    def body(self, nodes: list[ast.stmt]) -> Stmt:
        return seq([self.stmt(n) for n in nodes])

    def stmt(self, node: ast.stmt) -> Stmt:
        match node:
            case ast.Pass():
                return Seq(())
            case ast.Assign(targets=[ast.Subscript(value=ast.Name()) as target]):
                buffer = self.look_up(target.value.id, Buffer, target)  # type: ignore[attr-defined]
                return self.checked(lambda: Store(buffer, self.exprs(target.slice), self.expr(node.value)), node)
            case ast.For():
                return self.loop(node)
            case ast.If():
                otherwise = self.body(node.orelse) if node.orelse else None
                return If(self.expr(node.test), self.body(node.body), otherwise)
            case ast.While():
                return While(self.expr(node.test), self.body(node.body))
            case ast.With():
                return self.with_statement(node)
            case ast.Expr(value=ast.Call(func=ast.Name(id="evaluate"))):
                return Evaluate(self.expr(node.value.args[0]))  # type: ignore[attr-defined]
            case ast.Expr(value=ast.Call(func=ast.Name(id="store"))):
                args = node.value.args  # type: ignore[attr-defined]
                buffer = self.look_up(args[0].id, Buffer, node)
                return Store(buffer, self.exprs(args[1]), self.expr(args[2]), self.expr(args[3]))
        self.fail("this is no statement of TIR", node)

    def checked(self, make: Callable[[], Stmt], node: ast.AST) -> Stmt:
        try:
            return make()
        except (TypeError, ValueError) as error:
            self.fail(str(error), node)

    def loop(self, node: ast.For) -> For:
        call = node.iter
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in LOOP_KINDS:
            self.fail(f"a loop runs over one of {', '.join(LOOP_KINDS)}", node)
        if not isinstance(node.target, ast.Name):
            self.fail("a loop has one variable", node)
        extent = self.expr(call.args[0])
        var = Var(node.target.id)
        self.names[node.target.id] = var
        thread = self.text_of(call.args[1]) if len(call.args) > 1 else None
        notes = next((self.literal(k.value) for k in call.keywords if k.arg == "notes"), {})
        return For(var, extent, self.body(node.body), call.func.id, thread, tuple(sorted(notes.items())))

    def with_statement(self, node: ast.With) -> Stmt:
        item = node.items[0]
        call = item.context_expr
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            self.fail("with block(...), let(...) or allocate(...) is expected", node)
        if call.func.id == "block":
            return self.block(self.text_of(call.args[0]), node.body)
        if not isinstance(item.optional_vars, ast.Name):
            self.fail("a name is expected after `as`", node)
        name = item.optional_vars.id
        if call.func.id == "let":
            value = self.expr(call.args[0])
            var = Var(name, self.dtype(call.args[1]))
            self.names[name] = var
            return Let(var, value, self.body(node.body))
        if call.func.id == "allocate":
            buffer = self.buffer(name, call)
            self.names[name] = buffer
            return Allocate(buffer, self.body(node.body))
        self.fail(f"there is no statement {call.func.id!r}", node)

    def block(self, name: str, nodes: list[ast.stmt]) -> Block:
        iters: list[IterVar] = []
        bindings: list[Expr] = []
        parts: dict[str, Any] = {"reads": (), "writes": (), "predicate": TRUE, "init": None}
        allocs: list[Buffer] = []
        notes: dict[str, Any] = {}
        position = 0
        for node in nodes:
            head = self._head(node)
            if head in ITER_KINDS and isinstance(node, ast.Assign):
                call, target = node.value, node.targets[0]
                assert isinstance(call, ast.Call) and isinstance(target, ast.Name)
                extent, binding = self.expr(call.args[0]), self.expr(call.args[1])
                var = Var(target.id)
                self.names[target.id] = var
                iters.append(IterVar(var, extent, head))
                bindings.append(binding)
            elif head == "alloc" and isinstance(node, ast.Assign):
                target = node.targets[0]
                assert isinstance(node.value, ast.Call) and isinstance(target, ast.Name)
                buffer = self.buffer(target.id, node.value)
                self.names[target.id] = buffer
                allocs.append(buffer)
            elif head in ("reads", "writes"):
                parts[head] = tuple(self.region(a) for a in node.value.args)  # type: ignore[attr-defined]
            elif head == "where":
                parts["predicate"] = self.expr(node.value.args[0])  # type: ignore[attr-defined]
            elif head == "annotate":
                args = node.value.args  # type: ignore[attr-defined]
                notes[self.text_of(args[0])] = self.literal(args[1])
            elif head == "init" and isinstance(node, ast.With):
                parts["init"] = self.body(node.body)
            else:
                break
            position += 1
        return Block(
            name, tuple(iters), tuple(bindings), parts["reads"], parts["writes"], self.body(nodes[position:]), parts["init"],
            parts["predicate"], tuple(allocs), tuple(sorted(notes.items())),
        )  # fmt: skip

    def _head(self, node: ast.stmt) -> str:
        """The name a line of a block's signature begins with."""
        call: Any = None
        if isinstance(node, (ast.Expr, ast.Assign)):
            call = node.value
        elif isinstance(node, ast.With):
            call = node.items[0].context_expr
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
        if isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Name):
            return ""
        return call.func.id if named else ""

    def region(self, node: ast.expr) -> Region:
        if not isinstance(node, ast.Subscript) or not isinstance(node.value, ast.Name):
            self.fail("a region is buffer[...]", node)
        buffer = self.look_up(node.value.id, Buffer, node)
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        ranges = []
        for p in parts:
            if isinstance(p, ast.Call) and isinstance(p.func, ast.Name) and p.func.id == "span":
                ranges.append(Range(self.expr(p.args[0]), self.expr(p.args[1])))
            else:
                ranges.append(Range(self.expr(p), Const(1)))
        return Region(buffer, tuple(ranges))
