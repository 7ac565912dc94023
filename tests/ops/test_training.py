"""Optimizer steps and batch normalization in training mode, from the model file to compiled results, against ONNX's reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from support.models import run_compiled

DOMAIN = "ai.onnx.preview.training"
STEPS = {
    "Adagrad": ({"norm_coefficient": 0.01, "epsilon": 1e-3, "decay_factor": 0.1}, 1),
    "Momentum": ({"norm_coefficient": 0.01, "alpha": 0.95, "beta": 0.7, "mode": "standard"}, 1),
    "Adam": ({"norm_coefficient": 0.01, "norm_coefficient_post": 0.05, "alpha": 0.9, "beta": 0.98, "epsilon": 1e-3}, 2),
}


def compared(model: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path) -> None:
    expected, made = ReferenceEvaluator(model).run(None, inputs), run_compiled(model, inputs, folder)
    for value, (name, array) in zip(expected, made.items(), strict=True):
        np.testing.assert_allclose(array, value, rtol=2e-5, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("op", STEPS)
@pytest.mark.parametrize("step", [0, 1, 7])
def test_two_tensors_move_by_one_step(op: str, step: int, tmp_path: Path) -> None:
    attributes, states = STEPS[op]
    generator = np.random.default_rng(step)
    shapes = [(3, 5), (4,)]
    inputs = {"rate": np.array(0.1, np.float32), "step": np.array(step, np.int64)}
    for kind in range(2 + states):
        inputs |= {f"t{kind}_{k}": generator.random(s).astype(np.float32) for k, s in enumerate(shapes)}
    outputs = [f"y{kind}_{k}" for kind in range(1 + states) for k in range(2)]
    node = helper.make_node(op, list(inputs), outputs, domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        "step",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shapes[int(n[-1])]) for n in outputs],
    )
    compared(helper.make_model(graph, opset_imports=[helper.make_opsetid(DOMAIN, 1)], ir_version=10), inputs, tmp_path)


@pytest.mark.parametrize("shape", [(2, 3, 4, 5), (7, 3)])
def test_batch_normalization_updates_its_running_statistics(shape: tuple[int, ...], tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    inputs = {"x": generator.standard_normal(shape).astype(np.float32) + 3}
    inputs |= {n: generator.random(3).astype(np.float32) for n in ("scale", "bias", "mean", "variance")}
    node = helper.make_node("BatchNormalization", list(inputs), ["y", "m", "v"], training_mode=1, momentum=0.7)
    graph = helper.make_graph(
        [node],
        "batch_norm",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape if n == "y" else (3,)) for n in ("y", "m", "v")],
    )
    compared(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 15)], ir_version=10), inputs, tmp_path)
