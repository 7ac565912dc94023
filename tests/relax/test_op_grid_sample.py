"""grid_sample against ONNX Runtime, and all its rules against each other."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from support.operators import Arg, Case, check_cases

from everport.ir.dtype import DType, f16, f32, f64
from everport.ir.errors import CompileError
from everport.relax.builder import Builder
from everport.relax.op.grid_sample import GRID_SAMPLE_OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Var

H, W, O = Var("h"), Var("w"), Var("o")  # noqa: E741
PADDINGS = ("zeros", "border", "reflection")
HOW = [
    {"mode": m, "padding": p, "align_corners": a} for m, p, a in itertools.product(("nearest", "linear", "cubic"), PADDINGS, (0, 1))
]


def positions(shape: tuple[int, ...], t: DType = f32) -> Arg:
    """Positions inside the tensor, near its ends and far outside, none of them halfway between two elements."""
    return Arg(shape, t, lambda s, rng: np.round(rng.uniform(-3.5, 3.5, s) * 64) / 64 + 0.003)


def reference(x: np.ndarray, grid: np.ndarray, how: dict) -> np.ndarray:
    """ONNX Runtime's result."""
    node = helper.make_node(
        "GridSample", ["x", "grid"], ["y"], mode=how["mode"], padding_mode=how["padding"], align_corners=how["align_corners"]
    )
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in (("x", x), ("grid", grid))]
    graph = helper.make_graph([node], "grid", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": x, "grid": grid})[0]


@pytest.mark.parametrize("how", HOW, ids=lambda h: "-".join(map(str, h.values())))
def test_meaning(how: dict) -> None:
    rng = np.random.default_rng(0)
    shapes = [((2, 3, 4, 5), (2, 3, 7, 2)), ((1, 1, 2, 6), (1, 9, 9, 2))]
    if how["mode"] != "cubic":  # cubic is of two dimensions in ONNX Runtime
        shapes.append(((2, 2, 3, 4, 5), (2, 2, 3, 4, 3)))
    for shape, places in shapes:
        x = rng.standard_normal(shape).astype(np.float32)
        grid = positions(places).array({}, rng)
        got = GRID_SAMPLE_OPS["grid_sample"].numpy(how, x, grid)
        np.testing.assert_allclose(got, reference(x, grid, how), 1e-4, 1e-4)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_native(mode: str) -> None:
    sizes = ({H: 4, W: 5, O: 6}, {H: 1, W: 2, O: 1}, {H: 3, W: 9, O: 0})
    cases = []
    for how in HOW:
        if how["mode"] == mode:
            cases.append(Case("grid_sample", (Arg((2, 3, H, W)), positions((2, O, 3, 2))), how, sizes, tolerance=(1e-4, 1e-4)))
    check_cases(cases)


def test_one_and_three_dimensions_and_other_types() -> None:
    how = {"mode": "linear", "padding": "border", "align_corners": 1}
    cases = [
        Case("grid_sample", (Arg((2, 3, 7)), positions((2, 5, 1))), how),
        Case("grid_sample", (Arg((1, 2, 3, 4, 5)), positions((1, 2, 3, 4, 3))), how),
        Case("grid_sample", (Arg((1, 2, 4, 5), f64), positions((1, 3, 3, 2), f32)), how),
        Case("grid_sample", (Arg((1, 2, 4, 5), f16), positions((1, 3, 3, 2), f32)), how),
    ]
    check_cases(cases)


@pytest.mark.parametrize("padding", PADDINGS)
def test_an_empty_tensor_reads_as_zero(padding: str) -> None:
    how = {"mode": "linear", "padding": padding, "align_corners": 0}
    args = (Arg((1, 2, H, 3)), positions((1, 4, 5, 2)))
    check_cases([Case("grid_sample", args, how, ({H: 0}, {H: 2}), tolerance=(1e-4, 1e-4))])


def test_the_grid_must_fit() -> None:
    b = Builder()
    x = b.param("x", TensorInfo((1, 2, 3, 4), f32))
    with pytest.raises(CompileError, match="rank"):
        b.emit("grid_sample", x, b.param("g", TensorInfo((1, 5, 2), f32)), **HOW[0])
    with pytest.raises(CompileError, match="number of dimensions"):
        b.emit("grid_sample", x, b.param("g", TensorInfo((1, 5, 6, 3), f32)), **HOW[0])
