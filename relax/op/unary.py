"""Elementwise operators of one argument: a row each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import DType, boolean
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Expr, binary, const, gt, logical_not, lt, select, unary
from everport.tir.intrin import call


def widened(x: np.ndarray) -> np.ndarray:
    """f16, bf16 and fp8 as f32; other arrays as they are."""
    small = x.dtype.itemsize < 4 and x.dtype.kind not in "biu" and not x.dtype.name.startswith(("int", "uint"))
    return x.astype(np.float32) if small else x


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
        return np.asarray(numpy(widened(x))).astype(x.dtype if result is None else result.numpy)

    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x = buffers[0]
        return b.compute(name, x.shape, info.dtype, lambda *i: expr(x[i]))  # type: ignore[attr-defined]

    return OpDef(name, infer, meaning, lower, FusionKind.ELEMENTWISE)


def _intrinsic(name: str, numpy: Callable[[np.ndarray], np.ndarray], **options: Any) -> OpDef:
    return unary_op(name, lambda x: call(name, x), numpy, **options)


def _sign(x: Expr) -> Expr:
    one, zero = const(1, x.dtype), const(0, x.dtype)
    if not x.dtype.is_signed:
        return select(gt(x, zero), one, zero)
    rest = x if x.dtype.is_float else zero  # NaN stays NaN
    return select(lt(x, zero), const(-1, x.dtype), select(gt(x, zero), one, rest))


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Expr) -> Expr:
    """max(x, 0) + log1p(exp(-|x|)): no overflow."""
    return binary("max", x, const(0, x.dtype)) + call("log1p", call("exp", -call("abs", x)))


def _erf(x: np.ndarray) -> np.ndarray:
    return np.array([math.erf(float(v)) for v in x.reshape(-1)], x.dtype).reshape(x.shape)


UNARY_OPS: dict[str, OpDef] = table(
    unary_op("neg", lambda x: unary("neg", x), np.negative, ints=True),
    _intrinsic("abs", np.abs, ints=True),
    unary_op("sign", _sign, np.sign, ints=True),
    unary_op("relu", lambda x: binary("max", x, const(0, x.dtype)), lambda x: np.maximum(x, 0), ints=True),
    unary_op("logical_not", logical_not, np.logical_not, floats=False, bools=True),
    unary_op("bitwise_not", lambda x: unary("~", x), np.invert, floats=False, ints=True),
    unary_op("reciprocal", lambda x: const(1, x.dtype) / x, lambda x: 1 / x),
    unary_op("softplus", _softplus, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
    unary_op("rsqrt", lambda x: call("rsqrt", x), lambda x: 1 / np.sqrt(x)),
    _intrinsic("exp", np.exp),
    _intrinsic("log", np.log),
    _intrinsic("sqrt", np.sqrt),
    _intrinsic("sin", np.sin),
    _intrinsic("cos", np.cos),
    _intrinsic("tan", np.tan),
    _intrinsic("asin", np.arcsin),
    _intrinsic("acos", np.arccos),
    _intrinsic("atan", np.arctan),
    _intrinsic("sinh", np.sinh),
    _intrinsic("cosh", np.cosh),
    _intrinsic("tanh", np.tanh),
    _intrinsic("asinh", np.arcsinh),
    _intrinsic("acosh", np.arccosh),
    _intrinsic("atanh", np.arctanh),
    _intrinsic("erf", _erf),
    _intrinsic("sigmoid", _sigmoid),
    _intrinsic("floor", np.floor),
    _intrinsic("ceil", np.ceil),
    _intrinsic("trunc", np.trunc),
    _intrinsic("round", np.rint),
    _intrinsic("isnan", np.isnan, result=boolean),
    _intrinsic("isinf", np.isinf, result=boolean),
)
