"""What an operator is: one row with all its rules side by side."""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from everport.ir.dtype import DType
from everport.ir.errors import CompileError
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.arith import Analyzer
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, as_int, eq


class FusionKind(enum.StrEnum):
    """How an operator may fuse with its neighbours (Relax/TVM operator patterns)."""

    ELEMENTWISE = "elementwise"  # one output element reads the same element of every input
    BROADCAST = "broadcast"  # as elementwise, some inputs broadcast
    INJECTIVE = "injective"  # one output element reads a fixed element of each input (transpose, slice, concat)
    REDUCTION = "reduction"  # outputs combine many elements; elementwise producers may fuse in
    OUTPUT_FUSIBLE = "output_fusible"  # heavy (conv, matmul): elementwise consumers may fuse onto the output
    OPAQUE = "opaque"  # fuses with nothing


@dataclass(slots=True)
class InferContext:
    """Proves things about dimensions during inference and collects what must hold at run time.

    `constraints` are (a, b, reason): a == b could neither be proved nor refuted; the host program checks it on each run.
    """

    analyzer: Analyzer = field(default_factory=Analyzer)
    constraints: list[tuple[Expr, Expr, str]] = field(default_factory=list)

    def simplify(self, e: Expr) -> Expr:
        return self.analyzer.simplify(e)

    def equal(self, a: Expr, b: Expr) -> bool:
        """True if `a == b` is proved."""
        return a is b or self.analyzer.can_prove_equal(a, b)

    def unify(self, a: Expr, b: Expr, reason: str) -> Expr:
        """The common value of two dimensions that must agree; a CompileError if they can't, a constraint if unknown."""
        if self.equal(a, b):
            return a if as_int(a) is not None else b if as_int(b) is not None else a
        x, y = as_int(a), as_int(b)
        if (x is not None and y is not None) or (self.analyzer.can_prove(eq(a, b)) is False and _never(self.analyzer, a, b)):
            raise CompileError(f"{reason}: {a} and {b} differ")
        self.constraints.append((a, b, reason))
        return a if x is not None else b if y is not None else a

    def broadcast(self, a: Sequence[Expr], b: Sequence[Expr], reason: str) -> tuple[Expr, ...]:
        """The numpy broadcast of two shapes. Two unequal symbols are taken to be equal, which the run checks."""
        result: list[Expr] = []
        rank = max(len(a), len(b))
        left = [Const(1)] * (rank - len(a)) + list(a)
        right = [Const(1)] * (rank - len(b)) + list(b)
        for x, y in zip(left, right, strict=True):
            if as_int(x) == 1:
                result.append(y)
            elif as_int(y) == 1:
                result.append(x)
            else:
                result.append(self.unify(x, y, reason))
        return tuple(result)


def _never(analyzer: Analyzer, a: Expr, b: Expr) -> bool:
    lo_a, hi_a = analyzer.bounds(a)
    lo_b, hi_b = analyzer.bounds(b)
    below = hi_a is not None and lo_b is not None and hi_a < lo_b
    above = hi_b is not None and lo_a is not None and hi_b < lo_a
    return below or above


InferFn = Callable[[InferContext, Sequence[TensorInfo], Mapping[str, Any]], StructInfo]
NumpyFn = Callable[..., Any]
LowerFn = Callable[[FuncBuilder, Sequence[Buffer], Mapping[str, Any], StructInfo], Any]
DecomposeFn = Callable[[Any, Sequence[Any], Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True)
class OpDef:
    """One operator.

    `infer(ctx, infos, attrs)` gives the result's struct info or raises a CompileError.
    `numpy(attrs, *arrays)` is the meaning: attrs with integers in place of symbols, plus "out_shape" and "out_dtype" of the
    result; it gives an array (or a tuple of them).
    `lower(builder, buffers, attrs, info)` writes blocks into a FuncBuilder and gives the result Buffer (or a tuple of them),
    not yet marked as outputs. None where `decompose(builder, args, attrs)` rewrites the call into others before
    (it emits into a relax Builder and gives the result expression, or a tuple of them).
    """

    name: str
    infer: InferFn
    numpy: NumpyFn
    lower: LowerFn | None
    kind: FusionKind
    decompose: DecomposeFn | None = None


def same_as_first(ctx: InferContext, infos: Sequence[TensorInfo], attrs: Mapping[str, Any]) -> TensorInfo:
    """The shape and type of the first argument."""
    return infos[0]


def normalize_axis(axis: int, rank: int, what: str = "axis") -> int:
    """A non-negative axis; a CompileError names the range."""
    if not -rank <= axis < max(rank, 1):
        raise CompileError(f"{what} {axis} is out of range for a tensor of rank {rank}")
    return axis + rank if axis < 0 else axis


def expect_dtypes(infos: Sequence[TensorInfo], what: str) -> DType:
    """The one type that all arguments share."""
    first = infos[0].dtype
    for info in infos[1:]:
        if info.dtype != first:
            raise CompileError(f"{what}: the arguments differ in type: {', '.join(str(i.dtype) for i in infos)}")
    return first


def fields_of_info(info: StructInfo) -> tuple[TensorInfo, ...]:
    """The tensors of a result: one, or those of a tuple."""
    if isinstance(info, TupleInfo):
        return tuple(f for f in info.fields if isinstance(f, TensorInfo))
    if isinstance(info, TensorInfo):
        return (info,)
    raise TypeError(f"not a tensor or tuple of tensors: {info}")


def table(*rows: OpDef) -> dict[str, OpDef]:
    """Rows by name; a name twice is an error."""
    result: dict[str, OpDef] = {}
    for row in rows:
        if row.name in result:
            raise ValueError(f"operator {row.name!r} stands twice in a table")
        result[row.name] = row
    return result


def as_arrays(value: Any) -> tuple[np.ndarray, ...]:
    """What a numpy rule returned, as a tuple of arrays."""
    return tuple(np.asarray(v) for v in value) if isinstance(value, (tuple, list)) else (np.asarray(value),)
