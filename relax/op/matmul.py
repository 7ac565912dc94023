"""matmul: batched matrix product of tensors of rank 2 or more.

Attribute out_dtype: the result's type (accumulates in it; f16 and bf16 accumulate in f32).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import dtype
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, expect_dtypes, table
from everport.relax.op.binary import broadcast_index
from everport.relax.op.reduce import accumulator
from everport.relax.op.unary import widened
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Expr, cast


def _infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    a, b = infos
    if a.rank < 2 or b.rank < 2:
        raise CompileError(f"matmul takes tensors of rank 2 or more, got {a} and {b}")
    ctx.unify(a.shape[-1], b.shape[-2], f"the inner dimensions of matmul {a} and {b} differ")
    batch = ctx.broadcast(a.shape[:-2], b.shape[:-2], "the batch dimensions of matmul do not broadcast")
    t = dtype(attrs["out_dtype"]) if "out_dtype" in attrs else expect_dtypes(infos, "matmul")
    return TensorInfo((*batch, a.shape[-2], b.shape[-1]), t)


def _numpy(attrs: Mapping[str, Any], a: np.ndarray, b: np.ndarray) -> np.ndarray:
    t = attrs["out_dtype"] if not isinstance(attrs["out_dtype"], str) else dtype(attrs["out_dtype"]).numpy
    if np.dtype(t).kind in "iu":
        return np.matmul(a.astype(t), b.astype(t))
    return np.matmul(widened(a), widened(b)).astype(t)


def _lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x, y = buffers
    assert isinstance(info, TensorInfo)
    t = accumulator(info.dtype)

    def term(*i: Expr) -> Expr:
        batch, (m, n, k) = i[:-3], i[-3:]
        left = broadcast_index(x, (*batch, m, k)) if x.rank > 2 else (m, k)
        right = broadcast_index(y, (*batch, k, n)) if y.rank > 2 else (k, n)
        left = (*left[:-2], m, k)
        right = (*right[:-2], k, n)
        return cast(x[left], t) * cast(y[right], t)

    total = b.reduce("matmul", info.shape, [x.shape[-1]], t, "sum", term)
    if t == info.dtype:
        return total
    return b.compute("rounded", total.shape, info.dtype, lambda *i: cast(total[i], info.dtype))


MATMUL_OPS: dict[str, OpDef] = table(OpDef("matmul", _infer, _numpy, _lower, FusionKind.OUTPUT_FUSIBLE))

