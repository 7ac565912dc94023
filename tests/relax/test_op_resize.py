"""Resize against ONNX Runtime (the operator's numpy meaning is its own lowering), and natively."""

from __future__ import annotations

import itertools

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import f32, i8, u8
from everport.relax.op.resize import RESIZE_OPS
from everport.tir.expr import Var

H, W = Var("h"), Var("w")
COORDINATES = ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric", "half_pixel_symmetric")
ROUNDINGS = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
# Extents that are powers of two: the scales are exact, so that no rounding decides between neighbours.
SHAPES = [((4, 8), (8, 16)), ((4, 8), (2, 4)), ((4, 8), (7, 3)), ((8, 2), (10, 5)), ((4, 4), (1, 1)), ((1, 4), (3, 4))]


def attrs(out: tuple, scales: tuple, mode: str, coordinate: str, nearest: str = "floor", exclude: int = 0) -> dict:
    return {
        "out": out, "scales": scales, "mode": mode, "coordinate": coordinate, "nearest": nearest, "cubic_a": -0.75,
        "exclude_outside": exclude, "extrapolation": 0.0, "roi": (),
    }  # fmt: skip


def reference(x: np.ndarray, out: tuple, how: dict) -> np.ndarray:
    """ONNX Runtime's result."""
    node = helper.make_node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode=how["mode"], coordinate_transformation_mode=how["coordinate"],
        nearest_mode=how["nearest"], cubic_coeff_a=how["cubic_a"], exclude_outside=how["exclude_outside"],
    )  # fmt: skip
    kind = helper.np_dtype_to_tensor_dtype(x.dtype)
    graph = helper.make_graph(
        [node], "resize", [helper.make_tensor_value_info("x", kind, x.shape)], [helper.make_tensor_value_info("y", kind, out)],
        [helper.make_tensor("sizes", TensorProto.INT64, [len(out)], out)],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    onnx.checker.check_model(model)
    return onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]


def scales_of(inner: tuple, outer: tuple) -> tuple:
    return (1.0, 1.0, *(o / i for i, o in zip(inner, outer, strict=True)))


@pytest.mark.parametrize("coordinate", COORDINATES)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_meaning(mode: str, coordinate: str) -> None:
    rng = np.random.default_rng(3)
    for (inner, outer), nearest, exclude in itertools.product(SHAPES, ROUNDINGS if mode == "nearest" else ["floor"], (0, 1)):
        if exclude and mode != "cubic":
            continue
        x = rng.standard_normal((1, 2, *inner)).astype(np.float32)
        how = attrs((1, 2, *outer), scales_of(inner, outer), mode, coordinate, nearest, exclude)
        got = RESIZE_OPS["resize"].numpy({**how, "out_shape": how["out"], "out_dtype": np.float32}, x)
        expected = reference(x, how["out"], how)
        np.testing.assert_allclose(got, expected, 1e-4, 1e-5, err_msg=f"{inner} to {outer}, {nearest}, {exclude}")


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_native(mode: str) -> None:
    cases = []
    for (inner, outer), coordinate in itertools.product(SHAPES, COORDINATES):
        how = attrs((1, 2, *outer), scales_of(inner, outer), mode, coordinate, "round_prefer_floor")
        cases.append(Case("resize", (Arg((1, 2, *inner)),), how))
    check_cases(cases)


def test_symbolic_doubling() -> None:
    sizes = ({H: 3, W: 4}, {H: 1, W: 1}, {H: 0, W: 2})
    for mode, coordinate in itertools.product(("nearest", "linear"), ("half_pixel", "asymmetric")):
        how = attrs((1, 2, H * 2, W * 2), (1.0, 1.0, 2.0, 2.0), mode, coordinate)
        check_cases([Case("resize", (Arg((1, 2, H, W)),), how, sizes)])


def test_integers_round() -> None:
    cases = []
    for t in (u8, i8):
        whole = Arg((1, 1, 4, 4), t, lambda s, rng, t=t: rng.integers(t.min_value, t.max_value + 1, s))
        cases += [Case("resize", (whole,), attrs((1, 1, 7, 6), (1.0, 1.0, 1.75, 1.5), m, "half_pixel")) for m in ("nearest", "linear")]
    check_cases(cases)


def test_crops_fill_with_the_extrapolation_value() -> None:
    how = attrs((4, 4), (1.0, 1.0), "linear", "tf_crop_and_resize")
    check_cases([Case("resize", (Arg((3, 3), f32),), {**how, "roi": (0.0, 0.2, 0.9, 1.6), "extrapolation": 7.0})])
