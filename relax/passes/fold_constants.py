"""fold_constants: calls on constants are evaluated by the operators' numpy rules."""

from __future__ import annotations

import math
from dataclasses import dataclass

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.evaluate import evaluate_call
from everport.relax.expr import Binding, Call, Constant, Function, MatchCast, RelaxExpr, TupleGetItem, Var, constant
from everport.relax.op import OPS
from everport.relax.op.base import fields_of_info
from everport.relax.passes.common_subexpressions import IMPURE
from everport.relax.passes.rewrite import map_functions, replaced, with_bindings
from everport.tir.expr import free_vars


@dataclass(frozen=True)
class FoldConstants(Pass):
    """A result may grow to `growth` times its arguments, or to `free_bytes`; larger ones stay calls."""

    name = "fold_constants"
    growth: int = 2
    free_bytes: int = 1 << 20

    def __call__(self, module: IRModule) -> IRModule:
        return map_functions(module, self._fold)

    def _fold(self, f: Function) -> Function:
        values: dict[Var, RelaxExpr] = {}
        several: dict[Var, tuple[Constant, ...]] = {}
        bindings: list[Binding | MatchCast] = []
        for binding in f.bindings:
            value = replaced(binding.value, values)
            if isinstance(binding, Binding):
                if isinstance(value, TupleGetItem) and isinstance(value.value, Var) and value.value in several:
                    values[binding.var] = several[value.value][value.index]
                    continue
                results = self._results(value)
                if results is not None and len(results) == 1:
                    values[binding.var] = results[0]
                    continue
                if results is not None:
                    several[binding.var] = results
            bindings.append(binding if value is binding.value else binding.with_fields(value=value))
        return with_bindings(f, bindings, values)

    def _results(self, value: RelaxExpr) -> tuple[Constant, ...] | None:
        if not isinstance(value, Call) or value.op in IMPURE or OPS[value.op].lower is None:
            return None
        if not all(isinstance(a, Constant) for a in value.args) or free_vars(value):
            return None
        infos = fields_of_info(value.info)
        shapes = [i.static_shape() for i in infos]
        if any(s is None for s in shapes):
            return None
        size = sum(math.prod(s) * i.dtype.itemsize for s, i in zip(shapes, infos, strict=True))  # type: ignore[arg-type]
        given = sum(a.data.nbytes for a in value.args)  # type: ignore[attr-defined]
        if size > max(self.free_bytes, self.growth * given):
            return None
        arrays = evaluate_call(value, [a.data for a in value.args], {})  # type: ignore[attr-defined]
        name = next((a.name for a in value.args if a.name), "")  # type: ignore[attr-defined]
        return tuple(constant(a, name) for a in arrays)
