"""The operator table: `OPS` by name, made of one table a family."""

from everport.relax.op.base import FusionKind, InferContext, OpDef
from everport.relax.op.shape_tensor import SHAPE_TENSOR_OPS
from everport.relax.op.unary import UNARY_OPS

OPS: dict[str, OpDef] = {
    **UNARY_OPS,
    **SHAPE_TENSOR_OPS,
}

__all__ = ["OPS", "FusionKind", "InferContext", "OpDef"]
