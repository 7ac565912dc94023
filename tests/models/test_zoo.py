"""Real models agree with ONNX Runtime (rtol 1e-3, atol 1e-4; half floats and quantised models as zoo.py says)."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

import everport

sys.path.insert(0, str(Path(__file__).parent))
from zoo import INPUTS, QUANTISED, TOLERANCE, inputs_of, last_scale, model_path


@pytest.mark.parametrize("name", INPUTS)
def test_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    path = model_path(name)
    package = everport.compile(path, output=tmp_path / f"{name}.everport")
    arrays = inputs_of(name)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.add_session_config_entry("session.x64quantprecision", "1")  # else sums of u8 * i8 saturate on some processors
    rtol, atol = TOLERANCE.get(name, (1e-3, 1e-4))
    if name in QUANTISED:  # its optimiser fuses the quantisation of several layers into one, which rounds differently
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        rtol, atol = 0, 1.01 * last_scale(path)
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [o.name for o in session.get_outputs()]
    expected = dict(zip(names, session.run(names, arrays), strict=True))
    with everport.load(package) as model:
        made = model.run(arrays)
        assert list(made) == names
        for output in names:
            np.testing.assert_allclose(made[output], expected[output], rtol=rtol, atol=atol, err_msg=output)
        again = model.run(arrays)
        assert all(np.array_equal(made[o], again[o]) for o in names), "two runs differ"
