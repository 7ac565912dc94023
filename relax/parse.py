"""The script parser of Relax: reads functions and modules that relax/print.py wrote."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

import numpy as np

from everport.ir.errors import CompileError
from everport.ir.module import IRModule
from everport.relax.builder import infer_call
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
    make_attrs,
)
from everport.relax.op import OPS, InferContext
from everport.relax.struct_info import PrimInfo, ShapeInfo, StructInfo, TensorInfo, TupleInfo
from everport.tir.expr import Var as TirVar
from everport.tir.parse import Reader, read_func, syntax_tree


def parse(text: str, constants: Mapping[str, np.ndarray] | None = None, source: str = "text") -> IRModule:
    """A module of Relax functions and PrimFuncs. `constants` holds the arrays of large constants by hash (constants_of)."""
    functions: dict[str, Any] = {}
    for node in syntax_tree(text, source).body:
        reader = _Parser(text, source, constants or {})
        if not isinstance(node, ast.FunctionDef):
            reader.fail("a function is expected", node)
        functions[node.name] = read_func(node, text, source) if node.decorator_list else reader.function(node)
    return IRModule(functions)


class _Parser(Reader):
    def __init__(self, text: str, source: str, constants: Mapping[str, np.ndarray]) -> None:
        super().__init__(text, source)
        self.constants = constants
        self.values: dict[str, Var] = {}

    def function(self, node: ast.FunctionDef) -> Function:
        statements = list(node.body)
        while statements and isinstance(statements[0], ast.Assign):
            target = statements.pop(0).targets[0]  # type: ignore[attr-defined]
            assert isinstance(target, ast.Name)
            self.names[target.id] = TirVar(target.id)
        params = []
        for a in node.args.args:
            if a.annotation is None:
                self.fail(f"parameter {a.arg!r} has no struct info", a)
            self.values[a.arg] = Var(a.arg, self.info(a.annotation))
            params.append(self.values[a.arg])
        attrs: dict[str, Any] = {}
        first = statements[0] if statements else None
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Call):
            attrs = {k.arg or "": self.value(k.value) for k in first.value.keywords}
            statements.pop(0)
        bindings: list[Binding | MatchCast] = []
        for s in statements[:-1]:
            if not isinstance(s, ast.AnnAssign) or not isinstance(s.target, ast.Name) or s.value is None:
                self.fail("a binding is `name: info = value`", s)
            bindings.append(self.binding(s.target.id, s.annotation, s.value))
        last = statements[-1] if statements else node
        if not isinstance(last, ast.Return) or last.value is None:
            self.fail("a function ends with return", last)
        return Function(node.name, tuple(params), tuple(bindings), self.read(last.value), tuple(sorted(attrs.items())))

    def binding(self, name: str, annotation: ast.expr, node: ast.expr) -> Binding | MatchCast:
        info = self.info(annotation)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "match_cast":
            defines = tuple(self.look_up(a.id, TirVar, a) for a in node.args[1:] if isinstance(a, ast.Name))
            value = self.read(node.args[0])
            self.values[name] = Var(name, info)
            return MatchCast(self.values[name], value, defines)
        bound = self.read(node, info)
        self.values[name] = Var(name, info)
        return Binding(self.values[name], bound)

    def info(self, node: ast.expr) -> StructInfo:
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            self.fail("struct info is expected: Tensor(...), Shape(...), Prim(...) or Tuple(...)", node)
        args = node.args
        match node.func.id:
            case "Tensor":
                return TensorInfo(self.exprs(args[0]), self.dtype(args[1]))
            case "Shape":
                return ShapeInfo(self.exprs(args[0]))
            case "Prim":
                return PrimInfo(self.dtype(args[0]))
            case "Tuple":
                return TupleInfo(tuple(self.info(a) for a in args))
        self.fail(f"there is no struct info {node.func.id!r}", node)

    def read(self, node: ast.expr, info: StructInfo | None = None) -> RelaxExpr:
        """A graph value; `info` is what its binding says."""
        if isinstance(node, ast.Name):
            if node.id not in self.values:
                self.fail(f"{node.id!r} is used before it is bound", node)
            return self.values[node.id]
        if isinstance(node, ast.Tuple):
            return Tuple(tuple(self.read(e) for e in node.elts))
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
            self.fail(f"cannot read {ast.unparse(node)}", node)
        name = node.func.id
        if name == "const":
            return self.constant(node)
        if name == "item":
            return TupleGetItem(self.read(node.args[0]), self.integer(node.args[1]))
        if name == "call_tir":
            args = node.args[1].elts if isinstance(node.args[1], ast.Tuple) else []
            ints = next((self.exprs(k.value) for k in node.keywords if k.arg == "ints"), ())
            assert info is not None
            return CallTIR(self.text_of(node.args[0]), tuple(self.read(a) for a in args), ints, info)
        if name not in OPS:
            self.fail(f"there is no operator {name!r}", node)
        call_args = tuple(self.read(a) for a in node.args)
        attrs = make_attrs({k.arg or "": self.value(k.value) for k in node.keywords})
        if info is None:
            try:
                info = infer_call(InferContext(), name, call_args, attrs)
            except CompileError as error:
                self.fail(error.message, node)
        return Call(name, call_args, attrs, info)

    def constant(self, node: ast.Call) -> Constant:
        name = next((self.text_of(k.value) for k in node.keywords if k.arg == "name"), "")
        first = node.args[0]
        if isinstance(first, ast.Constant):
            key = self.text_of(first)
            if key not in self.constants:
                self.fail(f"the constant {key} is not among those given", node)
            return Constant(self.constants[key], name)
        kind, shape = self.dtype(first), self.literal(node.args[1])
        array = np.frombuffer(bytes.fromhex(self.text_of(node.args[2])), kind.numpy).reshape(shape)
        return Constant(array, name)
