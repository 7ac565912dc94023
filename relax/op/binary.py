"""Elementwise operators of two arguments with numpy broadcasting, select, and cast."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import DType, boolean, dtype, from_numpy
from everport.ir.errors import CompileError
from everport.relax.op.base import FusionKind, InferContext, OpDef, expect_dtypes, table
from everport.relax.op.unary import widened
from everport.relax.struct_info import StructInfo, TensorInfo
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, as_int, binary, cast, const, lt, select
from everport.tir.intrin import call


def broadcast_index(buffer: Buffer, index: Sequence[Expr]) -> tuple[Expr, ...]:
    """The element of `buffer` that numpy broadcasting puts at `index`."""
    tail = index[len(index) - buffer.rank :]
    return tuple(Const(0) if as_int(s) == 1 else i for i, s in zip(tail, buffer.shape, strict=True))


def binary_op(
    name: str,
    expr: Callable[[Expr, Expr], Expr],
    numpy: Callable[[np.ndarray, np.ndarray], np.ndarray],
    *,
    floats: bool = True,
    ints: bool = True,
    bools: bool = False,
    result: DType | None = None,
) -> OpDef:
    """A row from the TIR expression of one element and its numpy twin."""

    def infer(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
        t = expect_dtypes(infos, name)
        if not ((t.is_float and floats) or (t.is_int and ints) or (t.is_bool and bools)):
            raise CompileError(f"{name} does not take {t} tensors")
        shape = ctx.broadcast(infos[0].shape, infos[1].shape, f"the shapes of {name} do not broadcast")
        return TensorInfo(shape, t if result is None else result)

    def meaning(attrs: Mapping[str, Any], x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.asarray(numpy(widened(x), widened(y))).astype(x.dtype if result is None else result.numpy)

    def lower(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
        x, y = buffers
        assert isinstance(info, TensorInfo)
        return b.compute(
            name, info.shape, info.dtype, lambda *i: expr(x[broadcast_index(x, i)], y[broadcast_index(y, i)])
        )

    return OpDef(name, infer, meaning, lower, FusionKind.BROADCAST)


def _op(op: str) -> Callable[[Expr, Expr], Expr]:
    return lambda a, b: binary(op, a, b)


def _divide(a: Expr, b: Expr) -> Expr:
    """Floats divide, integers truncate."""
    return a / b if a.dtype.is_float else binary("tdiv", a, b)


def _np_divide(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    if np.issubdtype(x.dtype, np.floating):
        return x / y
    safe = np.where(y == 0, 1, y)
    quotient = np.abs(x.astype(object)) // np.abs(safe.astype(object)) * np.sign(x.astype(object)) * np.sign(safe.astype(object))
    return np.where(y == 0, 0, quotient)


def _power(a: Expr, b: Expr) -> Expr:
    """x ** 2, x ** 0.5 and the like are written out; the rest is pow. Integers: repeated squaring is not worth a kernel, the
    f64 power is exact to 2**53."""
    if isinstance(b, Const) and a.dtype.is_float:
        if b.value == 2:
            return a * a
        if b.value == 0.5:
            return call("sqrt", a)
        if b.value == 1:
            return a
        if b.value == 3:
            return a * a * a
    if a.dtype.is_int:
        wide = dtype("f64")
        return cast(call("pow", cast(a, wide), cast(b, wide)), a.dtype)
    return call("pow", a, b)


def _np_power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.power(x, y) if np.issubdtype(x.dtype, np.floating) else np.power(x.astype(np.float64), y.astype(np.float64))


def _floor_mod(a: Expr, b: Expr) -> Expr:
    """The remainder with the divisor's sign."""
    if a.dtype.is_int:
        return binary("%", a, b)
    rest = call("fmod", a, b)
    zero = const(0, a.dtype)
    return select(binary("and", binary("!=", rest, zero), binary("!=", lt(rest, zero), lt(b, zero))), rest + b, rest)


def _fmod(a: Expr, b: Expr) -> Expr:
    """The remainder with the dividend's sign."""
    return call("fmod", a, b) if a.dtype.is_float else binary("tmod", a, b)


def _np_mod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.mod(x, y) if np.issubdtype(x.dtype, np.floating) else np.where(y == 0, 0, np.mod(x, np.where(y == 0, 1, y)))


def _np_fmod(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.fmod(x, y) if np.issubdtype(x.dtype, np.floating) else np.where(y == 0, 0, np.fmod(x, np.where(y == 0, 1, y)))


def _compare(name: str, op: str, numpy: Callable[..., np.ndarray], **options: Any) -> OpDef:
    return binary_op(name, _op(op), numpy, result=boolean, **options)


def _logical(name: str, expr: Callable[[Expr, Expr], Expr], numpy: Callable[..., np.ndarray]) -> OpDef:
    return binary_op(name, expr, numpy, floats=False, ints=False, bools=True, result=boolean)


def _bits(name: str, op: str, numpy: Callable[..., np.ndarray]) -> OpDef:
    return binary_op(name, _op(op), numpy, floats=False)


def _shift(op: Callable[..., np.ndarray]) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    def apply(x: np.ndarray, y: np.ndarray) -> np.ndarray:
        inside = (y >= 0) & (y < x.dtype.itemsize * 8)
        emptied = np.where((x < 0) & (op is np.right_shift), -1, 0).astype(x.dtype)
        return np.where(inside, op(x, np.where(inside, y, 0).astype(x.dtype)), emptied)

    return apply


def _infer_where(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    cond, a, b = infos
    if not cond.dtype.is_bool:
        raise CompileError(f"the condition of where must be bool, not {cond.dtype}")
    t = expect_dtypes((a, b), "where")
    shape = ctx.broadcast(a.shape, b.shape, "the shapes of where do not broadcast")
    return TensorInfo(ctx.broadcast(cond.shape, shape, "the shapes of where do not broadcast"), t)


def _lower_where(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    c, x, y = buffers
    assert isinstance(info, TensorInfo)
    return b.compute(
        "where",
        info.shape,
        info.dtype,
        lambda *i: select(c[broadcast_index(c, i)], x[broadcast_index(x, i)], y[broadcast_index(y, i)]),
    )


def _infer_cast(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    return TensorInfo(infos[0].shape, dtype(attrs["to"]))


def cast_array(x: np.ndarray, to: np.dtype) -> np.ndarray:
    """TIR's cast on arrays: float to integer truncates, saturates, NaN gives 0; integers wrap."""
    target = from_numpy(to)
    if target.is_bool:
        return x != 0
    if target.is_int and from_numpy(x.dtype).is_float:
        wide = np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        low, high = int(target.min_value), int(target.max_value)
        flat = [min(max(int(v), low), high) if np.isfinite(v) else (high if v > 0 else low) for v in wide.reshape(-1)]
        return np.array(flat, dtype=object).reshape(x.shape).astype(np.int64 if target.kind == "int" else np.uint64).astype(to)
    if target.is_int and target.bits < 8:
        wide, half = x.astype(np.int64) & (1 << target.bits) - 1, 1 << (target.bits - 1)
        return (np.where(wide >= half, wide - 2 * half, wide) if target.kind == "int" else wide).astype(to)
    if target.is_float and from_numpy(x.dtype).is_int and to.itemsize < 4:
        return x.astype(np.float32).astype(to)
    return x.astype(to)


def _infer_bitcast(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    source, target = infos[0].dtype, dtype(attrs["to"])
    if source.bits != target.bits:
        raise CompileError(f"bitcast of {source} ({source.bits} bits) to {target} ({target.bits} bits)")
    return TensorInfo(infos[0].shape, target)


def _lower_cast(b: FuncBuilder, buffers: Sequence[Buffer], attrs: Mapping[str, Any], info: StructInfo) -> Buffer:
    x = buffers[0]
    assert isinstance(info, TensorInfo)
    return b.compute("cast", x.shape, info.dtype, lambda *i: cast(x[i], info.dtype))


BINARY_OPS: dict[str, OpDef] = table(
    binary_op("add", _op("+"), np.add),
    binary_op("subtract", _op("-"), np.subtract),
    binary_op("multiply", _op("*"), np.multiply),
    binary_op("divide", _divide, _np_divide),
    binary_op("power", _power, _np_power),
    binary_op("mod", _floor_mod, _np_mod),
    binary_op("fmod", _fmod, _np_fmod),
    binary_op("maximum", _op("max"), np.maximum),
    binary_op("minimum", _op("min"), np.minimum),
    _compare("equal", "==", np.equal, bools=True),
    _compare("not_equal", "!=", np.not_equal, bools=True),
    _compare("less", "<", np.less),
    _compare("less_equal", "<=", np.less_equal),
    _compare("greater", ">", np.greater),
    _compare("greater_equal", ">=", np.greater_equal),
    _logical("logical_and", _op("and"), np.logical_and),
    _logical("logical_or", _op("or"), np.logical_or),
    _logical("logical_xor", _op("!="), np.logical_xor),
    _bits("bitwise_and", "&", np.bitwise_and),
    _bits("bitwise_or", "|", np.bitwise_or),
    _bits("bitwise_xor", "^", np.bitwise_xor),
    _bits("shift_left", "<<", _shift(np.left_shift)),
    _bits("shift_right", ">>", _shift(np.right_shift)),
    OpDef("where", _infer_where, lambda attrs, c, x, y: np.where(c, x, y).astype(x.dtype), _lower_where, FusionKind.BROADCAST),
    OpDef("cast", _infer_cast, lambda attrs, x: cast_array(x, attrs["out_dtype"]), _lower_cast, FusionKind.ELEMENTWISE),
    OpDef("bitcast", _infer_bitcast, lambda a, x: x.view(a["out_dtype"]), None, FusionKind.OPAQUE),
)

