"""Convolutions in one to three spatial axes."""

from __future__ import annotations

import numpy as np
import pytest
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, bf16, f16, f32, f64, i8, i32, u8
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.conv import CONV_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

N, H, W = Var("n"), Var("h"), Var("w")
SIZES = ({N: 2, H: 6, W: 9}, {N: 1, H: 4, W: 4}, {N: 0, H: 7, W: 8})


def test_every_row_is_here() -> None:
    assert set(CONV_OPS) == {"conv", "conv_transpose"}


def attrs(rank: int = 2, stride=1, dilation=1, before=0, after=None, group: int = 1, **more) -> dict:
    def spread(v) -> tuple:
        return v if isinstance(v, tuple) else (v,) * rank

    after = before if after is None else after
    return {"strides": spread(stride), "dilations": spread(dilation), "before": spread(before), "after": spread(after), "group": group, **more}


CONVS = {
    "plain": ((4, 3, 3, 3), attrs()),
    "padded": ((4, 3, 3, 3), attrs(before=1)),
    "uneven_pads": ((4, 3, 3, 2), attrs(before=(1, 0), after=(2, 1))),
    "cropped": ((4, 3, 3, 3), attrs(before=(-1, 1), after=(0, -1))),
    "strided": ((5, 3, 3, 3), attrs(stride=(2, 3), before=1)),
    "dilated": ((5, 3, 2, 3), attrs(dilation=(3, 2), before=2)),
    "pointwise": ((16, 3, 1, 1), attrs()),
    "pointwise_strided": ((8, 3, 1, 1), attrs(stride=2)),
    "large_kernel": ((3, 3, 5, 5), attrs(before=2)),
    "many_channels": ((34, 2, 3, 3), attrs(before=1)),
}
GROUPED = {
    "depthwise": (4, (4, 1, 3, 3), attrs(before=1, group=4)),
    "depthwise_strided": (6, (6, 1, 3, 3), attrs(before=1, stride=2, group=6)),
    "depthwise_multiplied": (4, (8, 1, 3, 3), attrs(group=4)),
    "two_groups": (6, (4, 3, 3, 3), attrs(before=1, group=2)),
    "three_groups": (6, (9, 2, 1, 3), attrs(stride=2, group=3)),
}


@pytest.mark.parametrize("name", CONVS)
def test_conv(name: str) -> None:
    w, how = CONVS[name]
    check_cases([Case("conv", (Arg((N, w[1], H, W)), Arg(w)), how, SIZES)])


@pytest.mark.parametrize("name", GROUPED)
def test_grouped_conv(name: str) -> None:
    channels, w, how = GROUPED[name]
    check_cases([Case("conv", (Arg((N, channels, H, W)), Arg(w)), how, SIZES)])


@pytest.mark.parametrize("name", ["padded", "strided", "pointwise", "many_channels"])
def test_weights_with_output_channels_last(name: str) -> None:
    (o, i, *k), how = CONVS[name]
    check_cases([Case("conv", (Arg((N, i, H, W)), Arg((i, *k, o))), {**how, "weights": "io"}, SIZES)])


def test_one_and_three_axes() -> None:
    check_cases(
        [
            Case("conv", (Arg((N, 3, W)), Arg((4, 3, 3))), attrs(1, stride=2, before=1), SIZES),
            Case("conv", (Arg((N, 4, W)), Arg((4, 2, 5))), attrs(1, group=2), SIZES),
            Case("conv", (Arg((1, 2, 4, H, W)), Arg((3, 2, 2, 3, 3))), attrs(3, before=1), SIZES[:2]),
        ]
    )


@pytest.mark.parametrize("t", [f16, bf16, f64], ids=str)
def test_types(t: DType) -> None:
    check_cases([Case("conv", (Arg((2, 3, 6, 7), t), Arg((4, 3, 3, 3), t)), attrs(before=1))])


@pytest.mark.parametrize("x, w", [(u8, i8), (i8, i8), (u8, u8), (i32, i32)], ids=str)
def test_integers_accumulate_in_i32(x: DType, w: DType) -> None:
    def whole(t: DType):
        return lambda s, rng: rng.integers(max(int(t.min_value), -300), min(int(t.max_value), 300) + 1, s)

    args = (Arg((N, 3, H, W), x, whole(x)), Arg((4, 3, 3, 3), w, whole(w)))
    check_cases([Case("conv", args, attrs(before=1, out_dtype="i32"), SIZES)])


def transposed(rank: int, spatial: tuple, out: tuple, w: tuple, **more) -> Case:
    how = attrs(rank, **more)
    return Case("conv_transpose", (Arg((2, w[0], *spatial)), Arg(w)), {**how, "output_shape": out}, ({H: 4, W: 6}, {H: 1, W: 1}))


def test_conv_transpose() -> None:
    check_cases(
        [
            transposed(2, (H, W), (H + 2, W + 2), (3, 4, 3, 3)),
            transposed(2, (H, W), (H * 2, W * 2), (3, 4, 2, 2), stride=2),
            transposed(2, (H, W), (H * 2 - 1, W * 3), (3, 4, 3, 3), stride=(2, 3), before=(1, 0)),
            transposed(2, (H, W), (H * 2, W * 2), (3, 2, 3, 3), stride=2, before=1),
            transposed(2, (H, W), (H + 4, W + 2), (3, 2, 3, 2), dilation=2),
            transposed(2, (H, W), (H + 2, W + 2), (4, 2, 3, 3), group=2),
            transposed(2, (H, W), (H * 2, W * 2), (4, 1, 2, 2), stride=2, group=4),
            transposed(1, (W,), (W * 3 + 1,), (2, 3, 4), stride=3),
        ]
    )


def test_conv_transpose_is_the_adjoint_of_conv() -> None:
    """<conv(x), y> == <x, conv_transpose(y)> for the same weights."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 3, 9, 8)), rng.standard_normal((4, 3, 3, 2))
    how = attrs(stride=(2, 1), before=(1, 0))
    y = CONV_OPS["conv"].numpy({**how, "out_shape": (1, 4, 5, 7), "out_dtype": np.float64}, x, w)
    z = rng.standard_normal(y.shape)
    back = CONV_OPS["conv_transpose"].numpy({**how, "out_shape": x.shape, "out_dtype": np.float64}, z, w)
    assert np.isclose((y * z).sum(), (x * back).sum())


def test_what_does_not_fit_is_refused() -> None:
    b = Builder()
    x, w = b.param("x", TensorInfo((1, 5, 8, 8), f32)), b.param("w", TensorInfo((4, 3, 3, 3), f32))
    with pytest.raises(CompileError, match=r"conv: the channels of .* do not fit the weights .*: 5 and 3 differ"):
        b.emit("conv", x, w, **attrs())
    with pytest.raises(CompileError, match="input and weights of one rank"):
        b.emit("conv", x, b.param("v", TensorInfo((4, 5, 3), f32)), **attrs())
