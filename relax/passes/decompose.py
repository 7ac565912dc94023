"""decompose: operators with a decompose rule become calls of simpler ones."""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.builder import Builder
from everport.relax.expr import Binding, Call, Function, MatchCast, RelaxExpr, Tuple, Var
from everport.relax.op import OPS
from everport.relax.passes.rewrite import map_functions, replaced, with_bindings


@dataclass(frozen=True)
class Decompose(Pass):
    """Applies rules until none applies; `rounds` bounds the depth of rules that use each other."""

    name = "decompose"
    rounds: int = 8

    def __call__(self, module: IRModule) -> IRModule:
        for _ in range(self.rounds):
            before = module
            module = map_functions(module, _decomposed)
            if module is before:
                return module
        return module


def _decomposed(f: Function) -> Function:
    if not any(
        isinstance(b, Binding) and isinstance(b.value, Call) and OPS[b.value.op].decompose is not None for b in f.bindings
    ):
        return f
    builder = Builder(f.name)
    for symbol, lo, hi, divisor in f.attr("dim_ranges", ()):
        builder.bind_symbol(symbol, lo, hi, divisor)
    for p in f.params:
        builder.unique(p.name)
    for b in f.bindings:
        builder.unique(b.var.name)
    values: dict[Var, RelaxExpr] = {}
    bindings: list[Binding | MatchCast] = []
    for binding in f.bindings:
        value = replaced(binding.value, values)
        rule = OPS[value.op].decompose if isinstance(binding, Binding) and isinstance(value, Call) else None
        if rule is None:
            bindings.append(binding if value is binding.value else binding.with_fields(value=value))
            continue
        assert isinstance(value, Call)
        builder.bindings = []
        with builder.at(binding.span):
            result = rule(builder, value.args, dict(value.attrs))
        bindings.extend(builder.bindings)
        if isinstance(result, (tuple, list)):
            bindings.append(binding.with_fields(value=Tuple(tuple(result))))
        else:
            values[binding.var] = result
    f = with_bindings(f, bindings, values)
    constraints = tuple(builder.ctx.constraints)
    return f.with_attr(constraints=(*f.attr("constraints", ()), *constraints)) if constraints else f
