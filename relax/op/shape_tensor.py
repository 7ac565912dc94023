"""shape_tensor: integers known as expressions of the shape symbols, as a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import dtype
from everport.relax.op.base import FusionKind, InferContext, OpDef, table
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, cast, const, eq, select


def _infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(tuple(Const(d) for d in attrs["dims"]), dtype(attrs["dtype"]))


def _numpy(attrs: Mapping[str, Any]) -> np.ndarray:
    return np.array(attrs["values"], dtype=dtype(attrs["dtype"]).numpy).reshape(attrs["dims"])


def _lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    dims, target = attrs["dims"], dtype(attrs["dtype"])
    values = [cast(const(v), target) for v in attrs["values"]]

    def element(*index: Expr) -> Expr:
        flat: Expr = Const(0)
        for i, d in zip(index, dims, strict=True):
            flat = flat * d + i
        result = values[-1] if values else const(0, target)
        for position in range(len(values) - 2, -1, -1):
            result = select(eq(flat, position), values[position], result)
        return result

    return b.compute("shape", dims, target, element)


# attrs: values (tuple of i64 expressions, row-major), dims (tuple of ints), dtype (name of an integer type).
SHAPE_TENSOR_OPS: dict[str, OpDef] = table(OpDef("shape_tensor", _infer, _numpy, _lower, FusionKind.OPAQUE))
