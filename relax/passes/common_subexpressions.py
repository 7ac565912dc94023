"""common_subexpressions: equal calls on equal arguments are computed once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from everport.ir.module import IRModule
from everport.ir.node import Node, structural_hash
from everport.ir.passes import Pass
from everport.relax.expr import Binding, Call, Constant, Function, MatchCast, RelaxExpr, TupleGetItem, Var
from everport.relax.passes.rewrite import map_functions, replaced, with_bindings

IMPURE = ("random",)


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Arguments are equal if they are the same variable, or constants of equal content."""

    name = "common_subexpressions"

    def __call__(self, module: IRModule) -> IRModule:
        return map_functions(module, _shared)


def _shared(f: Function) -> Function:
    values: dict[Var, RelaxExpr] = {}
    seen: dict[Any, Var] = {}
    contents: dict[int, str] = {}
    bindings: list[Binding | MatchCast] = []
    for binding in f.bindings:
        value = replaced(binding.value, values)
        if isinstance(binding, Binding) and isinstance(value, (Call, TupleGetItem)):
            key = _key(value, contents)
            if key is not None and key in seen:
                values[binding.var] = seen[key]
                continue
            if key is not None:
                seen[key] = binding.var
        bindings.append(binding if value is binding.value else binding.with_fields(value=value))
    return with_bindings(f, bindings, values)


def _key(value: RelaxExpr, contents: dict[int, str]) -> Any:
    if isinstance(value, TupleGetItem):
        return ("field", value.value, value.index)
    assert isinstance(value, Call)
    if value.op in IMPURE:
        return None
    args = tuple(_argument(a, contents) for a in value.args)
    # Attributes may hold TIR expressions, which are interned: identity is equality.
    return (value.op, args, _frozen(value.attrs))


def _argument(a: RelaxExpr, contents: dict[int, str]) -> Any:
    if not isinstance(a, Constant):
        return a
    if id(a) not in contents:
        contents[id(a)] = structural_hash(a)
    return contents[id(a)]


def _frozen(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(_frozen(v) for v in value)
    return value if isinstance(value, Node) else (type(value).__name__, repr(value))
