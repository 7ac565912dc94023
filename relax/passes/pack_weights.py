"""pack_weights: constant weights of convolutions with the output channels last, so that they load as vectors.

Weights that are computed from constants element by element (dequantised ones) count as constant: the constants are packed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.expr import Binding, Call, Constant, Function, MatchCast, RelaxExpr, Var, make_attrs
from everport.relax.op import OPS
from everport.relax.op.base import FusionKind
from everport.relax.passes.rewrite import map_functions, with_bindings
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import as_int

DEPTH = 8  # calls between a weight and its constants


@dataclass(frozen=True)
class PackWeights(Pass):
    """conv(x, w) with constant w and one group becomes conv(x, w', weights="io"). Fewer than `least` channels stay."""

    name = "pack_weights"
    least: int = 8

    def __call__(self, module: IRModule) -> IRModule:
        return map_functions(module, lambda f: _Packer(f, self.least).packed())


class _Packer:
    """Packs the weights of one function."""

    def __init__(self, f: Function, least: int) -> None:
        self.function = f
        self.least = least
        self.calls = {b.var: b.value for b in f.bindings if isinstance(b, Binding) and isinstance(b.value, Call)}
        self.names = {b.var.name for b in f.bindings} | {p.name for p in f.params}
        self.made: dict[RelaxExpr, RelaxExpr] = {}  # packed weights, and what they are computed from
        self.bindings: list[Binding | MatchCast] = []

    def packed(self) -> Function:
        for binding in self.function.bindings:
            value = binding.value
            if isinstance(binding, Binding) and isinstance(value, Call) and self._fits(value):
                w = value.args[1]
                assert isinstance(w.info, TensorInfo)
                moved = self._moved(w, w.info.rank, binding)
                attrs = make_attrs({**dict(value.attrs), "weights": "io"})
                binding = binding.with_fields(value=value.with_fields(args=(value.args[0], moved), attrs=attrs))
            self.bindings.append(binding)
        return with_bindings(self.function, self.bindings)

    def _fits(self, call: Call) -> bool:
        if call.op != "conv" or call.attr("group") != 1 or call.attr("weights") is not None:
            return False
        info = call.args[1].info
        assert isinstance(info, TensorInfo)
        channels = as_int(info.shape[0])
        return channels is not None and channels >= self.least and self._constant(call.args[1], info.rank, DEPTH)

    def _constant(self, e: RelaxExpr, rank: int, depth: int) -> bool:
        """True for constants of that rank (or scalars), and for what is computed from such element by element."""
        if isinstance(e, Constant):
            return e.data.ndim in (0, rank)
        call = self.calls.get(e) if isinstance(e, Var) else None
        if call is None or depth == 0 or OPS[call.op].kind not in (FusionKind.ELEMENTWISE, FusionKind.BROADCAST):
            return False
        return isinstance(call.info, TensorInfo) and call.info.rank in (0, rank) and all(self._constant(a, rank, depth - 1) for a in call.args)

    def _moved(self, e: RelaxExpr, rank: int, where: Binding) -> RelaxExpr:
        """The value of `e` with its first axis last."""
        if e not in self.made:
            if isinstance(e, Constant):
                axes = (*range(1, rank), 0) if e.data.ndim else ()
                self.made[e] = Constant(_contiguous(e.data.transpose(axes)), e.name)
            else:
                assert isinstance(e, Var) and isinstance(e.info, TensorInfo)
                call = self.calls[e]
                args = tuple(self._moved(a, rank, where) for a in call.args)
                info = TensorInfo((*e.info.shape[1:], *e.info.shape[:1]), e.info.dtype)
                var = Var(self._unique(f"{e.name}_packed"), info)
                self.bindings.append(Binding(var, Call(call.op, args, call.attrs, info), where.span))
                self.made[e] = var
        return self.made[e]

    def _unique(self, name: str) -> str:
        found, number = name, 1
        while found in self.names:
            found, number = f"{name}_{number}", number + 1
        self.names.add(found)
        return found


def _contiguous(array: np.ndarray) -> np.ndarray:
    copy = np.ascontiguousarray(array)
    copy.flags.writeable = False
    return copy
