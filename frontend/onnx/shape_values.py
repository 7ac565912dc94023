"""Shape arithmetic written as tensors, evaluated symbolically at import.

Integer tensors whose contents are known as expressions of the shape symbols are object arrays of Python ints and TIR
expressions. An operator with a row here is evaluated on them when all its inputs are known, so that Shape -> Gather ->
Concat -> Reshape leaves no kernel behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from everport.tir.expr import Binary, Expr, as_int, binary, const

MAX_ELEMENTS = 256

Evaluator = Callable[[dict[str, Any], int, list[np.ndarray | None]], "np.ndarray | None"]


def objects(values: Any, shape: tuple[int, ...] | None = None) -> np.ndarray:
    """An object array of ints and expressions (numpy must not look inside expressions)."""
    if isinstance(values, (Expr, int, np.integer)):  # what numpy makes of a scalar object array
        values, shape = [values], () if shape is None else shape
    flat = list(np.ravel(values)) if isinstance(values, np.ndarray) else list(values)
    result = np.empty(len(flat), dtype=object)
    for k, v in enumerate(flat):
        known = as_int(v) if isinstance(v, Expr) else int(v)
        result[k] = v if known is None else known
    return result.reshape(np.shape(values) if shape is None else shape)


def _map2(op: str) -> Evaluator:
    def evaluate(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
        a, b = inputs
        assert a is not None and b is not None
        x, y = np.broadcast_arrays(a, b)
        result = []
        for p, q in zip(x.flat, y.flat, strict=True):
            value = binary(op, const(p), const(q))
            if isinstance(value, Binary) and op in ("tdiv", "==", "!=", "<", "<=", ">", ">="):
                return None
            result.append(value)
        return objects(result, x.shape)

    return evaluate


def _div(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    """Truncating division; for a dimension (>= 0) by a positive constant it is floor division."""
    a, b = inputs
    assert a is not None and b is not None
    x, y = np.broadcast_arrays(a, b)
    result: list[Any] = []
    for p, q in zip(x.flat, y.flat, strict=True):
        p_int, q_int = as_int(const(p)), as_int(const(q))
        if p_int is not None and q_int is not None and q_int != 0:
            result.append(binary("tdiv", const(p_int), const(q_int)))
        elif q_int is not None and q_int > 0 and _never_negative(const(p)):
            result.append(const(p) // q_int)
        else:
            return None
    return objects(result, x.shape)


def _never_negative(e: Expr) -> bool:
    """True where signs alone show it: sums, products, quotients of symbols and non-negative constants."""
    if isinstance(e, Binary):
        if e.op in ("+", "*", "//", "min"):
            return _never_negative(e.a) and _never_negative(e.b)
        if e.op == "max":
            return _never_negative(e.a) or _never_negative(e.b)
        return e.op == "%" and _never_negative(e.b)
    value = as_int(e)
    return value >= 0 if value is not None else True


def _gather(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    data, indices = inputs
    assert data is not None and indices is not None
    if any(isinstance(i, Expr) for i in np.ravel(indices)):
        return None
    return objects(np.take(data, indices.astype(np.int64), axis=attrs.get("axis", 0)))


def _concat(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    return objects(np.concatenate([i for i in inputs if i is not None], axis=attrs.get("axis", 1)))


def _axes(attrs: dict[str, Any], inputs: list[np.ndarray | None]) -> list[int] | None:
    if len(inputs) > 1 and inputs[1] is not None:
        if any(isinstance(i, Expr) for i in np.ravel(inputs[1])):
            return None
        return [int(i) for i in np.ravel(inputs[1])]
    axes = attrs.get("axes")
    return None if axes is None else list(axes)


def _unsqueeze(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    axes = _axes(attrs, inputs)
    return None if axes is None or inputs[0] is None else objects(np.expand_dims(inputs[0], tuple(axes)))


def _squeeze(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    axes = _axes(attrs, inputs)
    assert inputs[0] is not None
    return objects(np.squeeze(inputs[0], None if axes is None else tuple(axes)))


def _slice(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    data = inputs[0]
    assert data is not None
    if opset < 10:
        starts, ends = list(attrs["starts"]), list(attrs["ends"])
        axes, steps = list(attrs.get("axes", range(len(starts)))), [1] * len(starts)
    else:
        given = [None if i is None else list(np.ravel(i)) for i in inputs[1:]]
        if any(isinstance(v, Expr) for g in given if g is not None for v in g):
            return None
        starts, ends = given[0], given[1]  # type: ignore[assignment]
        axes = given[2] if len(given) > 2 and given[2] is not None else list(range(len(starts)))
        steps = given[3] if len(given) > 3 and given[3] is not None else [1] * len(starts)
    index = [slice(None)] * data.ndim
    for s, e, a, st in zip(starts, ends, axes, steps, strict=True):
        e = int(e)
        index[int(a)] = slice(int(s), None if int(st) < 0 and e < -data.shape[int(a)] else e, int(st))
    return objects(data[tuple(index)])


def _reshape(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    data, shape = inputs[0], inputs[1] if len(inputs) > 1 else np.array(attrs["shape"], dtype=object)
    assert data is not None and shape is not None
    if any(isinstance(v, Expr) for v in np.ravel(shape)) or any(v == 0 for v in np.ravel(shape)):
        return None
    return objects(data.reshape([int(v) for v in np.ravel(shape)]))


def _constant_of_shape(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    shape = inputs[0]
    value = attrs.get("value")
    if shape is None or value is None or any(isinstance(v, Expr) for v in np.ravel(shape)):
        return None
    if value.dtype.kind not in "iu":
        return None
    dims = [int(v) for v in np.ravel(shape)]
    if int(np.prod(dims)) > MAX_ELEMENTS:
        return None
    return objects([int(value.reshape(-1)[0])] * int(np.prod(dims)), tuple(dims))


def _range(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    values = [np.ravel(i)[0] for i in inputs if i is not None]
    if len(values) != 3 or any(isinstance(v, Expr) for v in values) or values[2] == 0:
        return None
    items = list(range(*values))
    return objects(items) if len(items) <= MAX_ELEMENTS else None


def _where(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    cond, a, b = inputs
    if cond is None or any(isinstance(v, Expr) for v in np.ravel(cond)):
        return None
    c, x, y = np.broadcast_arrays(cond, a, b)
    return objects([p if bool(k) else q for k, p, q in zip(c.flat, x.flat, y.flat, strict=True)], c.shape)


def _identity(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    return inputs[0]


def _cast(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    return inputs[0] if attrs.get("to") in (6, 7) else None  # INT32, INT64


def _reduce_prod(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    data = inputs[0]
    axes = _axes(attrs, inputs)
    if data is None or data.ndim != 1 or (axes is not None and axes not in ([0], [-1])):
        return None
    total = const(1)
    for v in data:
        total = total * v
    return objects([total], (1,) if attrs.get("keepdims", 1) else ())


def _neg(attrs: dict[str, Any], opset: int, inputs: list[np.ndarray | None]) -> np.ndarray | None:
    assert inputs[0] is not None
    return objects([const(0) - v for v in inputs[0].flat], inputs[0].shape)


EVALUATORS: dict[str, Evaluator] = {
    "Add": _map2("+"),
    "Sub": _map2("-"),
    "Mul": _map2("*"),
    "Div": _div,
    "Min": _map2("min"),
    "Max": _map2("max"),
    "Equal": _map2("=="),
    "Gather": _gather,
    "Concat": _concat,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Slice": _slice,
    "Reshape": _reshape,
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Where": _where,
    "Identity": _identity,
    "Cast": _cast,
    "ReduceProd": _reduce_prod,
    "Neg": _neg,
}

