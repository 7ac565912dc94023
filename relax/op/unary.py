"""Elementwise operators of one argument: a row each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import DType, boolean
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Cast, Expr, binary, cast, const, logical_not, select, unary, lt, gt
from everport.tir.intrin import call


def unary_op(
    name: str,
    expr: Callable[[Expr], Expr],
    numpy: Callable[[np.ndarray], np.ndarray],
    *,
    floats: bool = True,
    ints: bool = False,
    bools: bool = False,
    result: DType | None = None,
) -> OpDef:
    """A row from the TIR expression of one element and its numpy twin."""

    def infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
        t = infos[0].dtype
        if not ((t.is_float and floats) or (t.is_int and ints) or (t.is_bool and bools)):
            raise CompileError(f"{name} does not take {t} tensors")
        return infos[0] if result is None else TensorInfo(infos[0].shape, result)

    def meaning(attrs: Mapping[str, Any], x: np.ndarray) -> np.ndarray:
        wide = x.astype(np.float32) if x.dtype.itemsize < 4 and not np.issubdtype(x.dtype, np.integer) and x.dtype != bool else x
        return np.asarray(numpy(wide)).astype(x.dtype if result is None else result.numpy)

    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x = buffers[0]
        return b.compute(name, x.shape, info.dtype, lambda *i: expr(x[i]))  # type: ignore[attr-defined]

    return OpDef(name, infer, meaning, lower, FusionKind.ELEMENTWISE)


def _intrinsic(name: str, numpy: Callable[[np.ndarray], np.ndarray], **options: Any) -> OpDef:
    return unary_op(name, lambda x: call(name, x), numpy, **options)


def _sign(x: Expr) -> Expr:
    one, zero = const(1, x.dtype), const(0, x.dtype)
    positive = select(gt(x, zero), one, zero)
    return positive if not x.dtype.is_signed else select(lt(x, zero), const(-1, x.dtype), select(gt(x, zero), one, x if x.dtype.is_float else zero))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    with np.errstate(over="ignore"):
        return 1 / (1 + np.exp(-x))


UNARY_OPS: dict[str, OpDef] = table(
    unary_op("neg", lambda x: unary("neg", x), np.negative, ints=True),
    unary_op("abs", lambda x: call("abs", x), np.abs, ints=True),
    unary_op("sign", _sign, np.sign, ints=True),
    unary_op("relu", lambda x: binary("max", x, const(0, x.dtype)), lambda x: np.maximum(x, 0), ints=True),
    unary_op("logical_not", logical_not, np.logical_not, floats=False, bools=True),
    unary_op("reciprocal", lambda x: const(1, x.dtype) / x, lambda x: 1 / x),
    _intrinsic("exp", np.exp),
    _intrinsic("sigmoid", _sigmoid),
)
