"""dead_code: drops bindings that no result needs, and functions that nothing calls."""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.expr import Binding, CallTIR, Function, MatchCast, Var
from everport.relax.passes.rewrite import map_functions, uses_of, with_bindings
from everport.tir.func import PrimFunc


@dataclass(frozen=True)
class DeadCode(Pass):
    """Run-time checks (match_cast) stay."""

    name = "dead_code"

    def __call__(self, module: IRModule) -> IRModule:
        module = map_functions(module, _live)
        called = {
            b.value.func
            for f in module.of_type(Function).values()
            for b in f.bindings
            if isinstance(b, Binding) and isinstance(b.value, CallTIR)
        }
        unused = [name for name in module.of_type(PrimFunc) if name not in called]
        has_graph = bool(module.of_type(Function))
        return module.with_functions({name: None for name in unused}) if has_graph and unused else module


def _live(f: Function) -> Function:
    needed: set[Var] = set(uses_of(f.result))
    kept: list[Binding | MatchCast] = []
    for binding in reversed(f.bindings):
        if binding.var in needed or isinstance(binding, MatchCast):
            kept.append(binding)
            needed.update(uses_of(binding.value))
    return with_bindings(f, kept[::-1])
