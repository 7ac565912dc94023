"""Regions of interest from the model file to compiled results, against ONNX Runtime; all sizes but the channels are symbolic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import everport
from everport.ir.errors import UnsupportedError


def model(opset: int = 16, **attributes: Any) -> onnx.ModelProto:
    node = helper.make_node("RoiAlign", ["x", "rois", "batch"], ["y"], output_height=3, output_width=2, **attributes)
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"]),
        helper.make_tensor_value_info("rois", TensorProto.FLOAT, ["count", 4]),
        helper.make_tensor_value_info("batch", TensorProto.INT64, ["count"]),
    ]
    graph = helper.make_graph([node], "vision", infos, [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def compared(proto: onnx.ModelProto, folder: Path) -> None:
    generator = np.random.default_rng(0)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    with everport.load(everport.compile(proto, output=folder / "m.everport", opt=1), threads=1) as loaded:
        for n, h, w, count in ((2, 9, 7, 6), (1, 4, 12, 1)):
            first = generator.uniform(-6, 20, (count, 2))  # some lie outside
            rois = np.concatenate([first, first + generator.uniform(0.1, 15, (count, 2))], 1).astype(np.float32)
            inputs = {"x": generator.standard_normal((n, 3, h, w)).astype(np.float32), "rois": rois, "batch": generator.integers(0, n, count)}
            np.testing.assert_allclose(loaded.run(inputs)["y"], session.run(None, inputs)[0], 1e-4, 1e-5)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("transform", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("each", [1, 2])
def test_regions(mode: str, transform: str, each: int, tmp_path: Path) -> None:
    compared(model(mode=mode, coordinate_transformation_mode=transform, sampling_ratio=each, spatial_scale=0.5), tmp_path)


def test_regions_of_opset_10(tmp_path: Path) -> None:
    compared(model(10, sampling_ratio=2), tmp_path)


def test_samples_that_depend_on_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as error:
        everport.compile(model(), output=tmp_path / "m.everport")
    assert any("sampling_ratio 0" in note for note in error.value.notes)
