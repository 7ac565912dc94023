"""The reference interpreter of Relax: operators by their numpy rules, PrimFuncs by the TIR interpreter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from everport.ir.errors import CompileError
from everport.ir.module import IRModule
from everport.relax.evaluate import evaluate_call
from everport.relax.expr import Call, CallTIR, Constant, Function, MatchCast, Tuple, TupleGetItem, Var
from everport.relax.op.base import fields_of_info
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var as TirVar
from everport.tir.interp import call as call_primfunc
from everport.tir.interp import evaluate as evaluate_int


def evaluate(
    source: IRModule | Function,
    inputs: Mapping[str, np.ndarray],
    on_value: Callable[[Var, np.ndarray], Any] | None = None,
    name: str = "main",
) -> dict[str, np.ndarray]:
    """Outputs by name for inputs by name. Every result is checked against its struct info; `on_value` sees every tensor.

    Raises CompileError where shapes or types disagree.
    """
    function = source if isinstance(source, Function) else source[name]
    module = None if isinstance(source, Function) else source
    names = function.attr("input_names") or tuple(p.name for p in function.params)
    symbols = bind_symbols(function, inputs)
    values: dict[Var, Any] = {}
    for p, n in zip(function.params, names, strict=True):
        values[p] = np.asarray(inputs[n])

    def of(value: Any) -> Any:
        match value:
            case Constant():
                return value.data
            case Tuple():
                return tuple(of(v) for v in value.fields)
        return values[value]

    for binding in function.bindings:
        value = binding.value
        result: Any
        match value:
            case Call():
                made = evaluate_call(value, [of(a) for a in value.args], symbols)
                result = made if len(fields_of_info(value.info)) > 1 else made[0]
            case CallTIR():
                if module is None:
                    raise CompileError(f"call_tir({value.func}) needs the module that holds the function")
                ints = [evaluate_int(e, symbols) for e in value.ints]
                made_list = call_primfunc(module[value.func], [of(a) for a in value.args], ints)
                result = made_list[0] if isinstance(value.info, TensorInfo) else tuple(made_list)
            case TupleGetItem():
                result = values[value.value][value.index]  # type: ignore[index]
            case _:
                result = of(value)
        if isinstance(binding, MatchCast):
            _match(binding, result, symbols)
        values[binding.var] = result
        if on_value is not None and isinstance(result, np.ndarray):
            on_value(binding.var, result)
    outputs = function.attr("output_names") or tuple(f"output_{k}" for k in range(len(function.results)))
    return {n: np.asarray(of(r)) for n, r in zip(outputs, function.results, strict=True)}


def bind_symbols(function: Function, inputs: Mapping[str, np.ndarray]) -> dict[TirVar, int]:
    """Shape symbols from the inputs' shapes; a CompileError where an input does not fit."""
    names = function.attr("input_names") or tuple(p.name for p in function.params)
    symbols: dict[TirVar, int] = {}
    for p, n in zip(function.params, names, strict=True):
        if n not in inputs:
            raise CompileError(f"missing input {n!r}")
        array = np.asarray(inputs[n])
        assert isinstance(p.info, TensorInfo)
        if array.ndim != p.info.rank or array.dtype != p.info.dtype.numpy:
            raise CompileError(f"input {n!r} must be {p.info}, got {array.dtype}{list(array.shape)}")
        for d, extent in zip(p.info.shape, array.shape, strict=True):
            if isinstance(d, TirVar):
                symbols.setdefault(d, extent)
    for p, n in zip(function.params, names, strict=True):
        assert isinstance(p.info, TensorInfo)
        wanted = tuple(evaluate_int(d, symbols) for d in p.info.shape)
        if wanted != np.asarray(inputs[n]).shape:
            raise CompileError(f"input {n!r} must have the shape {list(wanted)}, got {list(np.asarray(inputs[n]).shape)}")
    return symbols


def _match(binding: MatchCast, array: np.ndarray, symbols: dict[TirVar, int]) -> None:
    info = binding.var.info
    assert isinstance(info, TensorInfo)
    for d, extent in zip(info.shape, array.shape, strict=True):
        if isinstance(d, TirVar) and d not in symbols:
            symbols[d] = extent
        elif evaluate_int(d, symbols) != extent:
            raise CompileError(f"match_cast: {binding.var} has extent {extent} where {d} is expected", span=binding.span)
