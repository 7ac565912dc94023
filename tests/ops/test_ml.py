"""Operators of ai.onnx.ml from the model file to compiled results, against ONNX Runtime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper
from support.models import run_compiled, run_onnxruntime

import everport
from everport.ir.errors import UnsupportedError

FLOATS = np.array([[1.5, -2.0, 0.0, np.nan], [0.0, 0.0, 0.0, 0.0], [-3.0, 4.0, -9.0, 2.0]], np.float32)
FINITE = np.nan_to_num(FLOATS)
INTS = np.array([[1, 2, 3, 0], [7, -1, 3, 3]], np.int64)
CASES: list[tuple[str, list[np.ndarray], dict[str, Any]]] = [
    ("ArrayFeatureExtractor", [FLOATS, np.array([[2, 0]], np.int64)], {}),
    ("ArrayFeatureExtractor", [FLOATS[0], np.array([3, 1, 1], np.int64)], {}),
    ("Binarizer", [FINITE], {"threshold": 0.5}),
    ("Binarizer", [FINITE], {}),
    *(("Scaler", [x], {"offset": [1.0, 2.0, 3.0, 4.0], "scale": [2.0, 0.5, 1.0, -1.0]}) for x in (FINITE, INTS, FINITE.astype(np.float64))),
    ("Scaler", [FINITE], {"offset": [1.0], "scale": [3.0]}),
    *(("Normalizer", [np.abs(x)], {"norm": n}) for n in ("MAX", "L1", "L2") for x in (FINITE, INTS, FINITE.astype(np.float64))),
    *(("Normalizer", [FINITE], {"norm": n}) for n in ("MAX", "L1", "L2")),
    ("Imputer", [FLOATS], {"imputed_value_floats": [9.0], "replaced_value_float": float("nan")}),
    ("Imputer", [FLOATS], {"imputed_value_floats": [1.0, 2.0, 3.0, 4.0], "replaced_value_float": 0.0}),
    ("Imputer", [INTS], {"imputed_value_int64s": [5, 6, 7, 8], "replaced_value_int64": 3}),
    ("OneHotEncoder", [INTS], {"cats_int64s": [3, 7, 1], "zeros": 1}),
    *(
        ("LinearRegressor", [FINITE], {"coefficients": list(np.linspace(-1, 1, 8)), "intercepts": [0.5, -1.0], "targets": 2, "post_transform": p})
        for p in ("NONE", "SOFTMAX", "LOGISTIC")
    ),
]


@pytest.mark.parametrize("op,inputs,attributes", CASES, ids=[f"{k}-{c[0]}" for k, c in enumerate(CASES)])
def test_agrees_with_onnx_runtime(op: str, inputs: list[np.ndarray], attributes: dict[str, Any], tmp_path: Path) -> None:
    names = [f"x{k}" for k in range(len(inputs))]
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), ["rows", *a.shape[1:]] if k == 0 and a.ndim > 1 else a.shape)
        for k, (n, a) in enumerate(zip(names, inputs, strict=True))
    ]
    node = helper.make_node(op, names, ["y"], domain="ai.onnx.ml", **attributes)
    element = 1 if op in ("Scaler", "Normalizer", "OneHotEncoder", "LinearRegressor") else helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    graph = helper.make_graph([node], "ml", infos, [helper.make_tensor_value_info("y", element, None)])
    opsets = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 20)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    feed = dict(zip(names, inputs, strict=True))
    expected, made = run_onnxruntime(model, feed)["y"], run_compiled(model, feed, tmp_path)["y"]
    assert made.dtype == expected.dtype
    np.testing.assert_allclose(made, expected, 1e-5, 1e-6)


def test_values_for_other_features_are_refused(tmp_path: Path) -> None:
    node = helper.make_node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[1.0, 2.0], scale=[1.0])
    infos = [helper.make_tensor_value_info(n, 1, [3, 4]) for n in "xy"]
    model = helper.make_model(helper.make_graph([node], "ml", infos[:1], infos[1:]), opset_imports=[helper.make_opsetid("ai.onnx.ml", 3)])
    with pytest.raises(UnsupportedError) as error:
        everport.compile(model, output=tmp_path / "m.everport")
    assert any("2 values of offset for 4 features" in note for note in error.value.notes)
