"""Operators of ai.onnx.ml that prepare features and apply linear models."""

from __future__ import annotations

import numpy as np

from everport.frontend.onnx.binary import as_dtype
from everport.frontend.onnx.context import NodeContext, Result, Rows, tensor_info
from everport.frontend.onnx.unary import like
from everport.relax.expr import RelaxExpr
from everport.relax.op.base import normalize_axis
from everport.tir.expr import Const, as_int


def _floats(ctx: NodeContext) -> RelaxExpr:
    """The first input in the type of the arithmetic: f64 stays, all else is f32."""
    return ctx.required(0) if ctx.info(0).dtype.name == "f64" else as_dtype(ctx, ctx.required(0), "f32")


def _per_feature(ctx: NodeContext, name: str, x: RelaxExpr) -> RelaxExpr:
    """An attribute with one value, or one for each element of x's last axis, in x's type."""
    values = np.asarray(ctx.attr(name, []))
    features = tensor_info(x).shape[-1] if tensor_info(x).rank else Const(1)
    if len(values) not in (1, as_int(features)):
        raise ctx.unsupported(f"{len(values)} values of {name} for {features} features")
    return ctx.constant(values, tensor_info(x).dtype)


def _array_feature_extractor(ctx: NodeContext) -> Result:
    x, rank = ctx.required(0), ctx.info(0).rank
    chosen = ctx.emit("reshape", ctx.required(1), shape=(ctx.info(1).numel(),))
    y = ctx.emit("gather", x, chosen, axis=normalize_axis(-1, rank))
    return y if rank > 1 else ctx.emit("reshape", y, shape=(Const(1), *tensor_info(y).shape))


def _binarizer(ctx: NodeContext) -> Result:
    x = ctx.required(0)
    threshold = ctx.attr("threshold", 0.0)
    if not ctx.info(0).dtype.is_float:
        return as_dtype(ctx, ctx.emit("greater", as_dtype(ctx, x, "f64"), ctx.constant(np.float64(threshold))), ctx.info(0).dtype.name)
    return as_dtype(ctx, ctx.emit("greater", x, like(ctx, threshold)), ctx.info(0).dtype.name)


def _scaler(ctx: NodeContext) -> Result:
    x = _floats(ctx)
    centred = ctx.emit("subtract", x, _per_feature(ctx, "offset", x))
    return as_dtype(ctx, ctx.emit("multiply", centred, _per_feature(ctx, "scale", x)), "f32")


def _normalizer(ctx: NodeContext) -> Result:
    """Rows divided by their norm; a row whose norm is 0 stays."""
    x, norm = _floats(ctx), ctx.attr("norm", "MAX")
    how = {"axes": (normalize_axis(-1, ctx.info(0).rank),), "keepdims": 1}
    if norm == "MAX":
        size = ctx.emit("reduce_max", x, **how)
    elif norm == "L1":
        size = ctx.emit("reduce_sum", ctx.emit("abs", x), **how)
    elif norm == "L2":
        size = ctx.emit("sqrt", ctx.emit("reduce_sum", ctx.emit("multiply", x, x), **how))
    else:
        raise ctx.unsupported(f"the norm {norm!r}")
    divisor = ctx.emit("where", ctx.emit("equal", size, like(ctx, 0, x)), like(ctx, 1, x), size)
    return as_dtype(ctx, ctx.emit("divide", x, divisor), "f32")


def _imputer(ctx: NodeContext) -> Result:
    x, kind = ctx.required(0), "floats" if ctx.info(0).dtype.is_float else "int64s"
    missing = ctx.attr("replaced_value_float", 0.0) if kind == "floats" else ctx.attr("replaced_value_int64", 0)
    if not ctx.attr(f"imputed_value_{kind}"):
        raise ctx.unsupported(f"an imputer of {ctx.info(0).dtype} without imputed_value_{kind}")
    found = ctx.emit("isnan", x) if np.isnan(missing) else ctx.emit("equal", x, like(ctx, missing))
    return ctx.emit("where", found, _per_feature(ctx, f"imputed_value_{kind}", x), x)


def _one_hot_encoder(ctx: NodeContext) -> Result:
    if ctx.attr("cats_strings"):
        raise ctx.unsupported("categories that are strings")
    if not ctx.attr("zeros", 1):
        raise ctx.unsupported("a one-hot encoder that fails on unknown categories")
    x = as_dtype(ctx, ctx.required(0), "i64")
    wide = ctx.emit("reshape", x, shape=(*tensor_info(x).shape, Const(1)))
    return as_dtype(ctx, ctx.emit("equal", wide, ctx.constant(np.asarray(ctx.attr("cats_int64s", []), np.int64))), "f32")


def _linear_regressor(ctx: NodeContext) -> Result:
    targets, transform = ctx.attr("targets", 1), ctx.attr("post_transform", "NONE")
    coefficients = np.asarray(ctx.attr("coefficients", []), np.float32)
    if ctx.info(0).rank != 2 or targets < 1 or len(coefficients) % targets:
        raise ctx.unsupported(f"{len(coefficients)} coefficients of {targets} targets for {ctx.info(0)}")
    y = ctx.emit("matmul", as_dtype(ctx, ctx.required(0), "f32"), ctx.constant(np.ascontiguousarray(coefficients.reshape(targets, -1).T)))
    if ctx.attr("intercepts"):
        y = ctx.emit("add", y, ctx.constant(np.asarray(ctx.attr("intercepts"), np.float32)))
    if transform == "SOFTMAX":
        return ctx.emit("softmax", y, axis=1)
    if transform == "LOGISTIC":
        return ctx.emit("sigmoid", y)
    if transform != "NONE":
        raise ctx.unsupported(f"the transform {transform} of the results")
    return y


ML: Rows = {
    "ArrayFeatureExtractor": [(1, _array_feature_extractor)],
    "Binarizer": [(1, _binarizer)],
    "Scaler": [(1, _scaler)],
    "Normalizer": [(1, _normalizer)],
    "Imputer": [(1, _imputer)],
    "OneHotEncoder": [(1, _one_hot_encoder)],
    "LinearRegressor": [(1, _linear_regressor)],
}
