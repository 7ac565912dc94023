"""One operator call on arrays: attributes with numbers in place of symbols, and the numpy rule."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.errors import CompileError
from everport.relax.expr import Call
from everport.relax.op import OPS
from everport.relax.op.base import as_arrays, fields_of_info
from everport.tir.expr import Expr, Var
from everport.tir.interp import evaluate as evaluate_int


def concrete(value: Any, symbols: Mapping[Var, int]) -> Any:
    """An attribute value with every expression evaluated."""
    if isinstance(value, Expr):
        return evaluate_int(value, dict(symbols))
    return tuple(concrete(v, symbols) for v in value) if isinstance(value, tuple) else value


def evaluate_call(call: Call, arrays: Sequence[np.ndarray], symbols: Mapping[Var, int]) -> tuple[np.ndarray, ...]:
    """The results of a call; a CompileError if the numpy rule disagrees with the inferred shape or type."""
    infos = fields_of_info(call.info)
    shapes = [tuple(concrete(d, symbols) for d in i.shape) for i in infos]
    attrs = {k: concrete(v, symbols) for k, v in call.attrs}
    attrs["out_shape"], attrs["out_dtype"] = shapes[0], infos[0].dtype.numpy
    with np.errstate(all="ignore"):
        results = as_arrays(OPS[call.op].numpy(attrs, *arrays))
    for result, info, shape in zip(results, infos, shapes, strict=True):
        if result.shape != shape or result.dtype != info.dtype.numpy:
            raise CompileError(
                f"{call.op}: the numpy rule gives {result.dtype}{list(result.shape)}, inference says {info.dtype}{list(shape)}"
            )
    return results
