"""TensorScatter, from the model file to compiled results, against its definition in the standard."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import everport


@pytest.mark.parametrize("mode", ["linear", "circular"])
@pytest.mark.parametrize("axis", [1, -2])
@pytest.mark.parametrize("indices", [True, False])
def test_one_package_updates_caches_of_every_size(mode: str, axis: int, indices: bool, tmp_path: Path) -> None:
    dims = ["batch", "heads", "length", 5]
    new = list(dims)
    new[axis] = "written"
    names = ["cache", "update", "at"] if indices else ["cache", "update"]
    graph = helper.make_graph(
        [helper.make_node("TensorScatter", names, ["y"], mode=mode, axis=axis)],
        "cache",
        [
            helper.make_tensor_value_info("cache", TensorProto.FLOAT, dims),
            helper.make_tensor_value_info("update", TensorProto.FLOAT, new),
            helper.make_tensor_value_info("at", TensorProto.INT64, ["batch"]),
        ][: len(names)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, dims)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    path = everport.compile(model, output=tmp_path / "m.everport", opt=1)
    generator = np.random.default_rng(0)
    with everport.load(path, threads=1) as loaded:
        for shape, written in (((2, 6, 7, 5), 3), ((1, 4, 4, 5), 4), ((3, 1, 1, 5), 1)):
            cache = generator.standard_normal(shape).astype(np.float32)
            size = list(shape)
            size[axis] = written
            update = generator.standard_normal(size).astype(np.float32)
            length = shape[axis]
            at = generator.integers(0, 3 * length if mode == "circular" else length - written + 1, shape[0])
            inputs = {"cache": cache, "update": update} | ({"at": at} if indices else {})
            expected = cache.copy()
            for b in range(shape[0]):
                for k in range(written):
                    place = (int(at[b]) if indices else 0) + k
                    np.moveaxis(expected[b], axis % 4 - 1, 0)[place % length] = np.moveaxis(update[b], axis % 4 - 1, 0)[k]
            np.testing.assert_array_equal(loaded.run(inputs)["y"], expected)
