"""The operator table: `OPS` by name, made of one table a family."""

from everport.relax.op.base import FusionKind, InferContext, OpDef
from everport.relax.op.binary import BINARY_OPS
from everport.relax.op.conv import CONV_OPS
from everport.relax.op.grid_sample import GRID_SAMPLE_OPS
from everport.relax.op.index import INDEX_OPS
from everport.relax.op.matmul import MATMUL_OPS
from everport.relax.op.normalize import NORMALIZE_OPS
from everport.relax.op.pool import POOL_OPS
from everport.relax.op.reduce import REDUCE_OPS
from everport.relax.op.resize import RESIZE_OPS
from everport.relax.op.shape import SHAPE_OPS
from everport.relax.op.shape_tensor import SHAPE_TENSOR_OPS
from everport.relax.op.unary import UNARY_OPS

OPS: dict[str, OpDef] = {
    **UNARY_OPS,
    **BINARY_OPS,
    **REDUCE_OPS,
    **MATMUL_OPS,
    **NORMALIZE_OPS,
    **SHAPE_OPS,
    **INDEX_OPS,
    **CONV_OPS,
    **POOL_OPS,
    **RESIZE_OPS,
    **GRID_SAMPLE_OPS,
    **SHAPE_TENSOR_OPS,
}

__all__ = ["OPS", "FusionKind", "InferContext", "OpDef"]
