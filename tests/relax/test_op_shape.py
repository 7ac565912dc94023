"""Operators that move elements, and shape_tensor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, boolean, f16, f32, f64, i8, i32, i64
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.shape import SHAPE_OPS
from everport.relax.op.shape_tensor import SHAPE_TENSOR_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, M = Var("n"), Var("m")
SIZES = ({N: 4, M: 6}, {N: 1, M: 1}, {N: 0, M: 3}, {N: 5, M: 9})
TYPES = (boolean, i8, f16, i32, f32, i64, f64)


def test_every_row_is_here() -> None:
    moved = {"reshape", "transpose", "broadcast_to", "concat", "slice", "pad", "tile", "iota", "full", "trilu", "eye"}
    assert moved == set(SHAPE_OPS)
    assert set(SHAPE_TENSOR_OPS) == {"shape_tensor"}


def of_all_types(op: str, shape: tuple, attrs: dict, count: int = 1) -> list[Case]:
    return [Case(op, (Arg(shape, t),) * count, attrs, ({N: 4, M: 6},)) for t in TYPES]


def test_reshape() -> None:
    shapes = [((N, M), (N * M,)), ((N, 6, M), (N, M, 6)), ((N, 6, M), (N * 2, 3, M)), ((N, M), (1, N, 1, M)), ((4, 6), (2, 3, 4))]
    shapes += [((N, 1), (N,)), ((1,), ()), ((), (1, 1)), ((2, N, 3, M), (N, 6 * M))]
    check_cases([*[Case("reshape", (Arg(a),), {"shape": b}, SIZES) for a, b in shapes], *of_all_types("reshape", (N, M), {"shape": (M * N,)})])


def test_transpose() -> None:
    cases = [Case("transpose", (Arg((2, N, M)),), {"axes": axes}, SIZES) for axes in itertools.permutations(range(3))]
    cases += [Case("transpose", (Arg((N, 3, M, 5)),), {"axes": axes}, SIZES[:2]) for axes in ((0, 2, 3, 1), (3, 1, 0, 2), (0, 1, 3, 2))]
    big = Case("transpose", (Arg((67, 130)),), {"axes": (1, 0)})
    check_cases([*cases, big, Case("transpose", (Arg(()),), {"axes": ()}), *of_all_types("transpose", (N, M), {"axes": (1, 0)})])


def test_broadcast_to() -> None:
    pairs = [((M,), (N, M)), ((N, 1), (N, M)), ((1, M), (N, M)), ((), (N, M)), ((N, M), (3, 1, M)), ((N, 1, M), (2, N, 4, M))]
    cases = [Case("broadcast_to", (Arg(a),), {"shape": b}, SIZES) for a, b in pairs if a != (N, M)]
    check_cases([*cases, *of_all_types("broadcast_to", (M,), {"shape": (N, M)})])


def test_concat() -> None:
    cases = [Case("concat", (Arg((N, M)), Arg((2, M)), Arg((N, M))), {"axis": 0}, SIZES)]
    cases += [Case("concat", (Arg((N, M)), Arg((N, 3))), {"axis": 1}, SIZES), Case("concat", (Arg((N, M)),), {"axis": 1}, SIZES)]
    cases += [Case("concat", (Arg((2, N)), Arg((2, 0)), Arg((2, M))), {"axis": 1}, SIZES)]
    check_cases([*cases, *of_all_types("concat", (N, M), {"axis": 0}, 2)])


def test_slice() -> None:
    cases = [
        Case("slice", (Arg((N, M)),), {"starts": a, "stops": b, "steps": s}, ({N: 4, M: 9}, {N: 3, M: 6}), lowest=1)
        for a, b, s in (
            ((0, 0), (N, M), (1, 1)),
            ((1, 2), (N, 5), (1, 1)),
            ((0, 1), (N, M), (2, 3)),
            ((N - 1, M - 1), (-1, -1), (-1, -2)),
            ((0, M - 4), (2, M), (1, 1)),
            ((1, 0), (1, M), (1, 1)),
            ((0, 5), (N, 1), (1, -3)),
        )
    ]
    check_cases([*cases, *of_all_types("slice", (N, M), {"starts": (1, 1), "stops": (N, 4), "steps": (1, 2)})])


def test_pad() -> None:
    def case(mode: str, before: tuple, after: tuple, *value: Arg, sizes: tuple = ({N: 4, M: 6}, {N: 5, M: 9})) -> Case:
        return Case("pad", (Arg((N, M)), *value), {"before": before, "after": after, "mode": mode}, sizes)

    seven = Arg((), f32, lambda s, _: np.array(7))
    cases = [case("constant", b, a, *v) for b, a in (((0, 1), (2, 3)), ((1, -2), (-1, 0)), ((-1, 3), (2, -2))) for v in ((), (seven,))]
    cases += [case(mode, (2, 1), (3, 2)) for mode in ("edge", "reflect", "wrap")]
    cases += [case(mode, (-1, 1), (2, -2)) for mode in ("edge", "reflect", "wrap")]
    cases += [case("constant", (0, 0), (0, 2), sizes=SIZES)]
    plain = {"before": (1, 1), "after": (0, 2), "mode": "constant"}
    check_cases([*cases, *of_all_types("pad", (N, M), plain)])


def test_tile() -> None:
    cases = [Case("tile", (Arg((N, M)),), {"repeats": r}, SIZES) for r in ((1, 1), (2, 3), (1, 2), (N, 1), (3, 0))]
    check_cases([*cases, *of_all_types("tile", (N, M), {"repeats": (2, 2)})])


@pytest.mark.parametrize("t", [i32, i64, f32, f64, f16], ids=str)
def test_iota(t: DType) -> None:
    cases = [Case("iota", (), {"count": N, "start": a, "step": s, "dtype": t.name}, ({N: 7}, {N: 0})) for a, s in ((0, 1), (5, -2), (N, 3))]
    if t.is_float:
        cases.append(Case("iota", (), {"count": 9, "start": 0.5, "step": 0.25, "dtype": t.name}))
    check_cases(cases)


def test_full_and_eye() -> None:
    cases = [Case("full", (Arg((), t),), {"shape": (N, 3, M)}, SIZES) for t in TYPES]
    cases += [Case("full", (Arg((1,)),), {"shape": ()})]
    cases += [Case("eye", (), {"shape": (N, M), "k": k, "dtype": t.name}, SIZES) for k in (0, 2, -1) for t in (f32, i64, boolean)]
    check_cases(cases)


@pytest.mark.parametrize("upper", [0, 1])
def test_trilu(upper: int) -> None:
    cases = [Case("trilu", (Arg((N, M)),), {"upper": upper, "k": k}, SIZES) for k in (0, 1, -1, 3, -7)]
    cases.append(Case("trilu", (Arg((2, N, M)),), {"upper": upper, "k": 1}, SIZES))
    check_cases([*cases, *of_all_types("trilu", (N, M), {"upper": upper, "k": 0})])


def test_shape_tensor() -> None:
    cases = [Case("shape_tensor", (), {"values": (N, M, N * M), "dims": (3,), "dtype": t.name}, SIZES) for t in (i32, i64)]
    cases += [Case("shape_tensor", (), {"values": (N,), "dims": (), "dtype": "i64"}, SIZES)]
    cases += [Case("shape_tensor", (), {"values": (N, 1, 2, M), "dims": (2, 2), "dtype": "i64"}, SIZES)]
    cases += [Case("shape_tensor", (), {"values": (), "dims": (0,), "dtype": "i64"})]
    check_cases(cases)


def test_what_does_not_fit_is_refused() -> None:
    b = Builder()
    x, y = b.param("x", TensorInfo((2, 3), f32)), b.param("y", TensorInfo((3, 3), f32))
    with pytest.raises(CompileError, match="changes the number of elements: 6 and 8 differ"):
        b.emit("reshape", x, shape=(2, 4))
    with pytest.raises(CompileError, match="no permutation"):
        b.emit("transpose", x, axes=(0, 0))
    with pytest.raises(CompileError, match="the shapes do not fit: 3 and 4 differ"):
        b.emit("broadcast_to", x, shape=(2, 4))
    with pytest.raises(CompileError, match="concat: axis 0: 2 and 3 differ"):
        b.emit("concat", x, y, axis=1)
