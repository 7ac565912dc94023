"""The math intrinsics: one row each with its numpy meaning. Every code generator has a spelling for each row it can emit.

All take and give floats of one type unless the row says otherwise; numpy evaluates f16, bf16 and fp8 in f32 and rounds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from everport.ir.dtype import DType, boolean
from everport.tir.expr import Call, Expr


@dataclass(frozen=True, slots=True)
class Intrin:
    """`arity` arguments; `result` "same" (the type of the first argument) or "bool"; `effect` marks statements (barriers)."""

    name: str
    arity: int
    numpy: Callable[..., np.ndarray]
    result: str = "same"
    integers: bool = False
    effect: bool = False


def _elementwise(f: Callable[[float], float]) -> Callable[..., np.ndarray]:
    def apply(x: np.ndarray) -> np.ndarray:
        return np.array([f(float(v)) for v in np.ravel(x)], dtype=np.float64).reshape(np.shape(x))

    return apply


def _erf(x: np.ndarray) -> np.ndarray:
    return _elementwise(math.erf)(x).astype(np.asarray(x).dtype)


def _round_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


INTRINS: dict[str, Intrin] = {
    row.name: row
    for row in (
        Intrin("exp", 1, np.exp),
        Intrin("exp2", 1, np.exp2),
        Intrin("expm1", 1, np.expm1),
        Intrin("log", 1, np.log),
        Intrin("log2", 1, np.log2),
        Intrin("log1p", 1, np.log1p),
        Intrin("sqrt", 1, np.sqrt),
        Intrin("rsqrt", 1, lambda x: 1 / np.sqrt(x)),
        Intrin("sin", 1, np.sin),
        Intrin("cos", 1, np.cos),
        Intrin("tan", 1, np.tan),
        Intrin("asin", 1, np.arcsin),
        Intrin("acos", 1, np.arccos),
        Intrin("atan", 1, np.arctan),
        Intrin("sinh", 1, np.sinh),
        Intrin("cosh", 1, np.cosh),
        Intrin("tanh", 1, np.tanh),
        Intrin("asinh", 1, np.arcsinh),
        Intrin("acosh", 1, np.arccosh),
        Intrin("atanh", 1, np.arctanh),
        Intrin("erf", 1, _erf),
        Intrin("sigmoid", 1, lambda x: 1 / (1 + np.exp(-x))),
        Intrin("floor", 1, np.floor),
        Intrin("ceil", 1, np.ceil),
        Intrin("trunc", 1, np.trunc),
        Intrin("round", 1, np.rint),  # half to even
        Intrin("round_away", 1, _round_away),  # half away from zero
        Intrin("abs", 1, np.abs, integers=True),
        Intrin("copysign", 2, np.copysign),
        Intrin("pow", 2, np.power),
        Intrin("fmod", 2, np.fmod),
        Intrin("atan2", 2, np.arctan2),
        Intrin("fma", 3, lambda a, b, c: a * b + c),
        Intrin("isnan", 1, np.isnan, result="bool"),
        Intrin("isinf", 1, np.isinf, result="bool"),
        Intrin("popcount", 1, lambda x: np.bitwise_count(x), integers=True),
        Intrin("barrier", 0, lambda: np.int64(0), effect=True),
    )
}


def call(name: str, *args: Expr) -> Call:
    """The intrinsic `name` applied to `args`; KeyError and TypeError say what is wrong."""
    if name not in INTRINS:
        raise KeyError(f"unknown intrinsic {name!r}; known: {', '.join(INTRINS)}")
    row = INTRINS[name]
    if len(args) != row.arity:
        raise TypeError(f"intrinsic {name!r} takes {row.arity} arguments, got {len(args)}")
    if args and not args[0].dtype.is_float and not (row.integers and args[0].dtype.is_int):
        raise TypeError(f"intrinsic {name!r} takes floats, {args[0]} is {args[0].dtype}")
    return Call(name, args, _result_type(row, args))


def _result_type(row: Intrin, args: tuple[Expr, ...]) -> DType:
    return boolean if row.result == "bool" or not args else args[0].dtype
