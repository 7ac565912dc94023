"""What passes share: replacing values and walking bindings of every function of a module."""

from __future__ import annotations

from collections.abc import Callable

from everport.ir.module import IRModule
from everport.relax.expr import Binding, Call, CallTIR, Function, MatchCast, RelaxExpr, Tuple, TupleGetItem, Var


def map_functions(module: IRModule, change: Callable[[Function], Function]) -> IRModule:
    """The module with every Relax function changed."""
    return module.with_functions({name: change(f) for name, f in module.of_type(Function).items()})


def replaced(value: RelaxExpr, values: dict[Var, RelaxExpr]) -> RelaxExpr:
    """`value` with variables replaced; the same object if none is."""
    if not values:
        return value
    match value:
        case Var():
            return values.get(value, value)
        case Call() | CallTIR():
            args = tuple(values.get(a, a) if isinstance(a, Var) else a for a in value.args)
            return value if all(a is b for a, b in zip(args, value.args, strict=True)) else value.with_fields(args=args)
        case Tuple():
            fields = tuple(replaced(f, values) for f in value.fields)
            return value if all(a is b for a, b in zip(fields, value.fields, strict=True)) else Tuple(fields)
        case TupleGetItem():
            return value.with_fields(value=replaced(value.value, values))
    return value


def uses_of(value: RelaxExpr) -> list[Var]:
    """The variables that a value reads, with repeats."""
    match value:
        case Var():
            return [value]
        case Call() | CallTIR():
            return [a for a in value.args if isinstance(a, Var)]
        case Tuple():
            return [v for f in value.fields for v in uses_of(f)]
        case TupleGetItem():
            return uses_of(value.value)
    return []


def with_bindings(
    f: Function, bindings: list[Binding | MatchCast], values: dict[Var, RelaxExpr] | None = None
) -> Function:
    """The function with other bindings, and results replaced by `values`; itself if nothing changed."""
    result = replaced(f.result, values or {})
    same = len(bindings) == len(f.bindings) and all(a is b for a, b in zip(bindings, f.bindings, strict=True))
    return f if same and result is f.result else f.with_fields(bindings=tuple(bindings), result=result)
