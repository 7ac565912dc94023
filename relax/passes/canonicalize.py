"""canonicalize: aliases, fields of known tuples, and operators that change nothing disappear."""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.expr import Binding, Call, Constant, Function, MatchCast, RelaxExpr, Tuple, TupleGetItem, Var
from everport.relax.passes.rewrite import map_functions, replaced, with_bindings
from everport.relax.struct_info import TensorInfo
from everport.tir.arith import Analyzer

# Operators that give their first argument back when shape and type stay as they are.
IDENTITY_WHEN_SAME = ("reshape", "broadcast_to", "cast")


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Keeps the names of results; a value that is both bound and aliased keeps its first name."""

    name = "canonicalize"

    def __call__(self, module: IRModule) -> IRModule:
        return map_functions(module, _canonical)


def _canonical(f: Function) -> Function:
    values: dict[Var, RelaxExpr] = {}
    tuples: dict[Var, Tuple] = {}
    made: dict[Var, Call] = {}
    bindings: list[Binding | MatchCast] = []
    analyzer = Analyzer()
    for binding in f.bindings:
        value = replaced(binding.value, values)
        if isinstance(binding, MatchCast):
            bindings.append(binding if value is binding.value else binding.with_fields(value=value))
            continue
        simpler = _simpler(value, tuples, made, analyzer)
        if isinstance(simpler, (Var, Constant)):
            values[binding.var] = simpler
            continue
        if isinstance(simpler, Tuple):
            tuples[binding.var] = simpler
        if isinstance(simpler, Call):
            made[binding.var] = simpler
        bindings.append(binding if simpler is binding.value else binding.with_fields(value=simpler))
    return with_bindings(f, bindings, values)


def _simpler(value: RelaxExpr, tuples: dict[Var, Tuple], made: dict[Var, Call], analyzer: Analyzer) -> RelaxExpr:
    if isinstance(value, TupleGetItem) and isinstance(value.value, Var) and value.value in tuples:
        return tuples[value.value].fields[value.index]
    if not isinstance(value, Call) or not value.args:
        return value
    source = value.args[0]
    if value.op in IDENTITY_WHEN_SAME and _same(source.info, value.info, analyzer):
        return source
    if value.op == "transpose" and tuple(value.attr("axes", ())) == tuple(range(len(value.attr("axes", ())))):
        return source
    if value.op == "reshape" and isinstance(source, Var) and source in made and made[source].op == "reshape":
        inner = made[source].args[0]
        if _same(inner.info, value.info, analyzer):
            return inner
        return value.with_fields(args=(inner, *value.args[1:]))
    return value


def _same(a: object, b: object, analyzer: Analyzer) -> bool:
    return (
        isinstance(a, TensorInfo)
        and isinstance(b, TensorInfo)
        and a.dtype == b.dtype
        and a.rank == b.rank
        and all(analyzer.can_prove_equal(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    )
