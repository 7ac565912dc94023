"""legalize: operator calls become calls of PrimFuncs; equal PrimFuncs are shared."""

from __future__ import annotations

from dataclasses import dataclass

from everport.ir.errors import UnsupportedError
from everport.ir.module import IRModule
from everport.ir.node import Node, structural_equal, structural_hash
from everport.ir.passes import Pass
from everport.relax.expr import Binding, Call, CallTIR, Constant, Function, MatchCast, RelaxExpr
from everport.relax.op import OPS
from everport.relax.op.base import fields_of_info
from everport.relax.passes.rewrite import with_bindings
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const
from everport.tir.func import PrimFunc

VIEWS = ("reshape", "bitcast")  # no code: the result is the argument's memory


@dataclass(frozen=True)
class Legalize(Pass):
    """Constants of one element are written into the PrimFunc. Views (reshape, bitcast) stay calls: memory planning gives them their
    argument's place. The PrimFunc's shape symbols are the caller's, passed as integers."""

    name = "legalize"

    def __call__(self, module: IRModule) -> IRModule:
        functions = FunctionTable(module)
        changes: dict[str, Node] = {}
        for name, f in module.of_type(Function).items():
            bindings: list[Binding | MatchCast] = []
            for binding in f.bindings:
                if isinstance(binding, Binding) and isinstance(binding.value, Call) and binding.value.op not in VIEWS:
                    bindings.append(binding.with_fields(value=_lowered(binding.value, binding, functions)))
                else:
                    bindings.append(binding)
            changes[name] = with_bindings(f, bindings)
        return module.with_functions({**changes, **functions.added})


class FunctionTable:
    """PrimFuncs by structure."""

    def __init__(self, module: IRModule) -> None:
        self.by_hash: dict[str, list[tuple[str, PrimFunc]]] = {}
        self.names = set(module.functions)
        self.added: dict[str, PrimFunc] = {}
        for name, f in module.of_type(PrimFunc).items():
            self.by_hash.setdefault(structural_hash(f), []).append((name, f))

    def add(self, func: PrimFunc) -> str:
        """The name under which an equal function stands, or a new one."""
        digest = structural_hash(func)
        for name, known in self.by_hash.get(digest, []):
            if structural_equal(known, func):
                return name
        name, number = func.name, 1
        while name in self.names:
            name, number = f"{func.name}_{number}", number + 1
        self.names.add(name)
        func = func.with_fields(name=name)
        self.by_hash.setdefault(digest, []).append((name, func))
        self.added[name] = func
        return name


def _lowered(call: Call, binding: Binding, functions: FunctionTable) -> CallTIR:
    op = OPS[call.op]
    if op.lower is None:
        raise UnsupportedError(f"{call.op} has no lowering", span=binding.span)
    builder = FuncBuilder(call.op, kind=str(op.kind))
    buffers: list[Buffer] = []
    args: list[RelaxExpr] = []
    for position, arg in enumerate(call.args):
        info = fields_of_info(arg.info)[0]
        if isinstance(arg, Constant) and arg.data.size == 1:
            value = arg.data.reshape(-1)[0]
            literal = Const(float(value) if info.dtype.is_float else int(value), info.dtype)
            buffers.append(builder.compute(f"c{position}", info.shape, info.dtype, lambda *_, literal=literal: literal))
        else:
            buffers.append(builder.input(f"a{position}", info.shape, info.dtype))
            args.append(arg)
    results = op.lower(builder, buffers, dict(call.attrs), call.info)
    for result in results if isinstance(results, (tuple, list)) else (results,):
        builder.output(result)
    func = builder.finish()
    return CallTIR(functions.add(func), tuple(args), tuple(func.scalars), call.info)
