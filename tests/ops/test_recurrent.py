"""RNN, LSTM and GRU from the model file to compiled results, against ONNX Runtime; the batch is symbolic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.models import run_compiled, run_onnxruntime

import everport
from everport.ir.errors import UnsupportedError

GATES = {"RNN": 1, "LSTM": 4, "GRU": 3}
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 6


def model(op: str, used: set[str], steps: Any = STEPS, **attributes: Any) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A layer with the optional inputs named in `used`, and its inputs; all but X are data, too."""
    d = 2 if attributes.get("direction") == "bidirectional" else 1
    wide = GATES[op] * HIDDEN
    shapes = {
        "X": (STEPS, BATCH, WIDTH), "W": (d, wide, WIDTH), "R": (d, wide, HIDDEN), "B": (d, 2 * wide), "lens": (BATCH,),
        "h": (d, BATCH, HIDDEN), "c": (d, BATCH, HIDDEN), "P": (d, 3 * HIDDEN),
    }  # fmt: skip
    order = ["X", "W", "R", "B", "lens", "h"] + (["c", "P"] if op == "LSTM" else [])
    names = [n if n in used or n in ("X", "W", "R") else "" for n in order]
    generator = np.random.default_rng(0)
    inputs = {n: generator.standard_normal(shapes[n]).astype(np.float32) for n in names if n}
    if "lens" in used:
        inputs["lens"] = np.array([5, 2, 4], np.int32)
    infos = []
    for n, a in inputs.items():
        dims = ["batch" if k == {"X": 1, "h": 1, "c": 1, "lens": 0}.get(n, -1) else e for k, e in enumerate(a.shape)]
        if n == "X":
            dims[0] = steps
        infos.append(helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), dims))
    outputs = ["Y", "Y_h"] + (["Y_c"] if op == "LSTM" else [])
    node = helper.make_node(op, names, outputs, hidden_size=HIDDEN, **attributes)
    graph = helper.make_graph([node], "layer", infos, [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) for o in outputs])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=9), inputs


def compared(proto: onnx.ModelProto, inputs: dict[str, np.ndarray], folder: Path) -> None:
    made = run_compiled(proto, inputs, folder)
    for name, value in run_onnxruntime(proto, inputs).items():
        np.testing.assert_allclose(made[name], value, 1e-4, 1e-5, err_msg=name)


@pytest.mark.parametrize("op", GATES)
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("used", [(), ("B", "lens", "h", "c")], ids=["plain", "all"])
def test_directions(op: str, direction: str, used: tuple[str, ...], tmp_path: Path) -> None:
    compared(*model(op, set(used), direction=direction), tmp_path)


def test_lstm_with_peepholes_and_coupled_gates(tmp_path: Path) -> None:
    compared(*model("LSTM", {"B", "h", "c", "P"}, direction="bidirectional"), tmp_path)
    compared(*model("LSTM", {"B"}, input_forget=1), tmp_path)


def test_gru_that_resets_after_the_product(tmp_path: Path) -> None:
    compared(*model("GRU", {"B", "h"}, linear_before_reset=1, direction="bidirectional"), tmp_path)


@pytest.mark.parametrize("op", GATES)
def test_clip(op: str, tmp_path: Path) -> None:
    compared(*model(op, {"B"}, clip=0.4), tmp_path)


@pytest.mark.parametrize("name", ["Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign", "Softplus"])
def test_activations(name: str, tmp_path: Path) -> None:
    with_alpha = name in ("Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu")
    how: dict[str, Any] = {"activation_alpha": [0.3]} if with_alpha else {}
    how |= {"activation_beta": [0.6]} if name in ("Affine", "ScaledTanh", "HardSigmoid") else {}
    compared(*model("RNN", {"B"}, activations=[name], **how), tmp_path)


def test_parameters_go_to_the_activations_that_take_them(tmp_path: Path) -> None:
    names = ["HardSigmoid", "tanh", "ScaledTanh"]
    compared(*model("LSTM", {"B"}, activations=names, activation_alpha=[0.3, 0.7], activation_beta=[0.4, 1.2]), tmp_path)


def test_the_batch_may_come_first(tmp_path: Path) -> None:
    proto, inputs = model("LSTM", {"B"}, direction="bidirectional")
    expected = run_onnxruntime(proto, inputs)
    flipped, _ = model("LSTM", {"B"}, direction="bidirectional", layout=1)
    flipped.graph.input[0].CopyFrom(helper.make_tensor_value_info("X", TensorProto.FLOAT, ["batch", STEPS, WIDTH]))
    inputs["X"] = np.ascontiguousarray(inputs["X"].transpose(1, 0, 2))
    made = run_compiled(flipped, inputs, tmp_path)
    np.testing.assert_allclose(made["Y"], expected["Y"].transpose(2, 0, 1, 3), 1e-4, 1e-5)
    np.testing.assert_allclose(made["Y_c"], expected["Y_c"].transpose(1, 0, 2), 1e-4, 1e-5)


@pytest.mark.parametrize("steps,reason", [("time", "here it is time, which --dim can fix"), (500, "a recurrent layer of 500 steps")])
def test_lengths_that_need_a_loop_are_refused(steps: Any, reason: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as error:
        everport.compile(model("GRU", set(), steps)[0], output=tmp_path / "m.everport")
    assert any(reason in note for note in error.value.notes)
