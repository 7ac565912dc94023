"""matmul: batches, broadcasting, wide accumulation, and extents that no tile divides."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, bf16, f16, f32, f64, i8, i32, u8
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.matmul import MATMUL_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, M, K, B = Var("n"), Var("m"), Var("k"), Var("b")
SIZES = ({N: 5, M: 33, K: 17}, {N: 1, M: 1, K: 1}, {N: 0, M: 3, K: 2}, {N: 3, M: 2, K: 0})


def test_every_row_is_here() -> None:
    assert set(MATMUL_OPS) == {"matmul"}


@pytest.mark.parametrize("t", [f16, bf16, f32, f64, i32], ids=str)
def test_types(t: DType) -> None:
    check_cases([Case("matmul", (Arg((N, K), t), Arg((K, M), t)), {"out_dtype": t.name}, SIZES)])


@pytest.mark.parametrize("a, b", [(u8, i8), (i8, i8), (u8, u8)], ids=str)
def test_quantised(a: DType, b: DType) -> None:
    def low(t: DType):
        return lambda s, rng: rng.integers(t.min_value, t.max_value + 1, s)

    check_cases([Case("matmul", (Arg((N, K), a, low(a)), Arg((K, M), b, low(b))), {"out_dtype": "i32"}, SIZES)])


def test_batches() -> None:
    shapes = [
        ((B, N, K), (B, K, M)),
        ((B, N, K), (K, M)),
        ((N, K), (B, K, M)),
        ((B, 1, N, K), (1, 3, K, M)),
        ((2, B, N, K), (1, K, M)),
    ]
    sizes = ({B: 2, N: 3, M: 9, K: 4}, {B: 1, N: 1, M: 2, K: 3}, {B: 0, N: 2, M: 2, K: 2})
    check_cases([Case("matmul", (Arg(x), Arg(y)), {"out_dtype": "f32"}, sizes) for x, y in shapes])


def test_sizes_around_the_tiles() -> None:
    check_cases(
        [
            Case("matmul", (Arg((n, k)), Arg((k, m))), {"out_dtype": "f32"}, tolerance=(1e-4, 1e-4))
            for n, m, k in ((1, 64, 128), (64, 1, 128), (7, 13, 11), (8, 32, 16), (17, 65, 31), (33, 100, 1), (2, 3, 257))
        ],
    )


def test_small_floats_accumulate_wide() -> None:
    ones = Arg((1, 4096), f16, lambda s, _: np.ones(s))
    column = Arg((4096, 1), f16, lambda s, _: np.ones(s))
    check_cases([Case("matmul", (ones, column), {"out_dtype": "f16"}, tolerance=(0, 0))])


def test_what_does_not_fit_is_refused() -> None:
    b = Builder()
    x, y, v = (b.param(n, TensorInfo(s, f32)) for n, s in (("x", (2, 3)), ("y", (4, 5)), ("v", (3,))))
    with pytest.raises(CompileError, match=r"the inner dimensions of matmul .* differ: 3 and 4 differ"):
        b.emit("matmul", x, y)
    with pytest.raises(CompileError, match="matmul takes tensors of rank 2 or more"):
        b.emit("matmul", x, v)
