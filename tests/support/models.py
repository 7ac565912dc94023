"""Small ONNX models for tests."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

import everport


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Sequence[Any]],
    outputs: Sequence[str],
    weights: dict[str, np.ndarray] | None = None,
    opset: int = 17,
    kind: int = TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of f32 inputs (name -> shape with numbers and names) whose output shapes are left open."""
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info(n, kind, list(s)) for n, s in inputs.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs],
        [numpy_helper.from_array(w, n) for n, w in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def run_compiled(proto: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path) -> dict[str, np.ndarray]:
    """The outputs of the model compiled into a package in `folder`, by name."""
    with everport.load(everport.compile(proto, output=folder / "m.everport", opt=1), threads=1) as loaded:
        return loaded.run(inputs)


def run_onnxruntime(proto: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """ONNX Runtime's outputs by name."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    return dict(zip([o.name for o in session.get_outputs()], session.run(None, inputs), strict=True))


def perceptron() -> onnx.ModelProto:
    """Two layers with a relu between, and a dynamic batch."""
    source = np.random.default_rng(0)
    weights = {
        "w1": source.standard_normal((6, 16)).astype(np.float32),
        "b1": source.standard_normal(16).astype(np.float32),
        "w2": source.standard_normal((16, 3)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["h"]),
        helper.make_node("Add", ["h", "b1"], ["hb"]),
        helper.make_node("Relu", ["hb"], ["r"]),
        helper.make_node("MatMul", ["r", "w2"], ["y"]),
    ]
    return model(nodes, {"x": ["batch", 6]}, ["y"], weights)


def perceptron_reference(x: np.ndarray) -> np.ndarray:
    w = {i.name: numpy_helper.to_array(i) for i in perceptron().graph.initializer}
    return np.maximum(x @ w["w1"] + w["b1"], 0) @ w["w2"]
