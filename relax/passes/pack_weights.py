"""pack_weights: constant weights of convolutions with the output channels last, so that they load as vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.expr import Binding, Call, Constant, Function, MatchCast, make_attrs
from everport.relax.passes.rewrite import map_functions, with_bindings


@dataclass(frozen=True)
class PackWeights(Pass):
    """conv(x, w) with constant w and one group becomes conv(x, w', weights="io"). Fewer than `least` channels stay."""

    name = "pack_weights"
    least: int = 8

    def __call__(self, module: IRModule) -> IRModule:
        return map_functions(module, self._packed)

    def _packed(self, f: Function) -> Function:
        made: dict[int, Constant] = {}
        bindings: list[Binding | MatchCast] = []
        for binding in f.bindings:
            value = binding.value
            if isinstance(binding, Binding) and isinstance(value, Call) and self._fits(value):
                w = value.args[1]
                assert isinstance(w, Constant)
                if id(w) not in made:
                    axes = (*range(1, w.data.ndim), 0)
                    made[id(w)] = Constant(_contiguous(w.data.transpose(axes)), w.name)
                attrs = make_attrs({**dict(value.attrs), "weights": "io"})
                binding = binding.with_fields(value=value.with_fields(args=(value.args[0], made[id(w)]), attrs=attrs))
            bindings.append(binding)
        return with_bindings(f, bindings)

    def _fits(self, call: Call) -> bool:
        if call.op != "conv" or call.attr("group") != 1 or call.attr("weights") is not None:
            return False
        w = call.args[1]
        return isinstance(w, Constant) and w.data.shape[0] >= self.least


def _contiguous(array: np.ndarray) -> np.ndarray:
    copy = np.ascontiguousarray(array)
    copy.flags.writeable = False
    return copy
