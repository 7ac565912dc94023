"""Running a lowered module call by call, with every intermediate in hand: for finding where two executions part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from everport.codegen.llvm.jit import compile_and_load
from everport.ir.module import IRModule
from everport.relax.expr import Binding, Call, CallTIR, Constant, Function, TupleGetItem, Var
from everport.relax.interp import bind_symbols
from everport.targets import Target
from everport.tir.expr import Var as TirVar
from everport.tir.interp import evaluate as evaluate_int


def run_layers(
    module: IRModule, target: Target, inputs: Mapping[str, np.ndarray], name: str = "main"
) -> Iterator[tuple[Binding, np.ndarray]]:
    """Each call of a kernel with its (first) result, in order. Inputs are by ONNX name."""
    f: Function = module[name]
    symbols = bind_symbols(f, inputs)
    names = f.attr("input_names") or tuple(p.name for p in f.params)
    values: dict[Any, Any] = {p: np.ascontiguousarray(inputs[n]) for p, n in zip(f.params, names, strict=True)}
    kernels: dict[str, Any] = {}

    def of(value: Any) -> np.ndarray:
        return value.data if isinstance(value, Constant) else values[value]

    for binding in f.bindings:
        value = binding.value
        if isinstance(value, CallTIR) and isinstance(binding, Binding):
            func = module[value.func]
            ints = [evaluate_int(e, symbols) for e in value.ints]
            scalars: dict[TirVar, int] = dict(zip(func.scalars, ints, strict=True))
            made = [
                np.zeros(tuple(evaluate_int(d, scalars) for d in b.shape), b.dtype.numpy)
                for b in func.buffers[len(func.inputs) :]
            ]
            if value.func not in kernels:
                kernels[value.func] = compile_and_load(func, target)
            kernels[value.func](*(np.ascontiguousarray(of(a)).reshape(-1) for a in value.args), *made, *ints)
            infos = [binding.var.info] if func.num_outputs == 1 else list(binding.var.info.fields)  # type: ignore[attr-defined]
            shaped = [
                m.reshape(tuple(evaluate_int(d, symbols) for d in i.shape))  # type: ignore[attr-defined]
                for m, i in zip(made, infos, strict=False)
            ]
            values[binding.var] = shaped[0] if func.num_outputs == 1 else tuple(shaped)
            yield binding, shaped[0]
        elif isinstance(value, TupleGetItem):
            values[binding.var] = values[value.value][value.index]
        elif isinstance(value, Call):  # a view
            shape = tuple(evaluate_int(d, symbols) for d in binding.var.info.shape)  # type: ignore[attr-defined]
            values[binding.var] = of(value.args[0]).reshape(shape)
        elif isinstance(value, (Var, Constant)):
            values[binding.var] = of(value)
