"""Model files that were damaged or forged end in a CompileError."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.models import model, perceptron

import everport
from everport.frontend.onnx import import_onnx
from everport.ir.errors import CompileError


def external(tmp_path: Path, location: str, length: int | None = None, offset: int = 0, data: bytes = b"\0" * 64) -> Path:
    """A model whose weight lies in another file."""
    proto = model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": [4]}, ["y"], {"w": np.zeros(4, np.float32)})
    weight = proto.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", str(16 if length is None else length))):
        weight.external_data.add(key=key, value=value)
    (tmp_path / "weights.bin").write_bytes(data)
    onnx.save(proto, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_external_data_is_read(tmp_path: Path) -> None:
    path = external(tmp_path, "weights.bin", data=np.arange(4, dtype=np.float32).tobytes())
    with everport.load(everport.compile(path, output=tmp_path / "m.everport")) as compiled:
        assert compiled(np.ones(4, np.float32)).tolist() == [1, 2, 3, 4]


def test_a_linked_model_is_resolved_first(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    external(folder, "weights.bin")
    os.symlink(folder / "m.onnx", tmp_path / "link.onnx")
    assert import_onnx(tmp_path / "link.onnx")


@pytest.mark.parametrize("location", ["/etc/passwd", "../secret", "a/../../secret", "C:\\secret", "..\\secret", "", "missing.bin"])
def test_external_paths_are_contained(tmp_path: Path, location: str) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    with pytest.raises(CompileError, match="external data"):
        import_onnx(external(tmp_path / "inner", location))


def test_a_link_that_leads_out(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "secret").write_bytes(b"\0" * 64)
    path = external(inner, "out.bin")
    os.symlink(tmp_path / "secret", inner / "out.bin")
    with pytest.raises(CompileError, match="leads out"):
        import_onnx(path)


@pytest.mark.parametrize(("length", "offset"), [(15, 0), (16, 60), (16, -4), (10**12, 0)])
def test_external_sizes_are_checked(tmp_path: Path, length: int, offset: int) -> None:
    with pytest.raises(CompileError):
        import_onnx(external(tmp_path, "weights.bin", length, offset))


def test_truncated_and_random_files(tmp_path: Path) -> None:
    data = perceptron().SerializeToString()
    path = tmp_path / "m.onnx"
    source = np.random.default_rng(0)
    for keep in range(0, len(data), 41):
        path.write_bytes(data[:keep])
        with pytest.raises(CompileError):
            import_onnx(path)
    for _ in range(100):
        damaged = bytearray(data)
        for place in source.integers(0, len(data), 3):
            damaged[place] = int(source.integers(0, 256))
        path.write_bytes(damaged)
        try:
            import_onnx(path)
        except CompileError:
            continue


def test_broken_graphs() -> None:
    loop = [helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    cases = {
        "cycle": model(loop, {"x": [2]}, ["a"]),
        "made by no node": model([helper.make_node("Add", ["x", "ghost"], ["y"])], {"x": [2]}, ["y"]),
        "output 'z'": model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["z"]),
        "differ": model(
            [helper.make_node("MatMul", ["x", "w"], ["y"])], {"x": [2, 3]}, ["y"], {"w": np.zeros((4, 5), np.float32)}
        ),
    }
    for words, proto in cases.items():
        with pytest.raises(CompileError, match=words):
            import_onnx(proto)


def test_unsorted_nodes_are_sorted() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    assert len(import_onnx(model(nodes, {"x": [2]}, ["y"]))["main"].bindings) == 2


@pytest.mark.parametrize(
    "attributes,reason",
    [({}, "the attribute 'blocksize' is missing"), ({"blocksize": 2.0}, "the attribute 'blocksize' must be of type INT, not FLOAT")],
)
def test_attributes_must_be_there_and_of_their_type(attributes: dict, reason: str) -> None:
    proto = model([helper.make_node("DepthToSpace", ["x"], ["y"], **attributes)], {"x": [1, 4, 2, 2]}, ["y"])
    with pytest.raises(CompileError, match=reason):
        import_onnx(proto)


@pytest.mark.parametrize("op,position,opset", [("CumSum", 1, 17), ("TopK", 1, 17), ("Trilu", 1, 17), ("DFT", 2, 20)])
def test_a_number_must_be_one_number(op: str, position: int, opset: int) -> None:
    names = ["x", *[""] * (position - 1), "n"]
    outputs = ["y", "i"] if op == "TopK" else ["y"]
    for count in (0, 2):
        numbers = {"n": np.ones(count, np.int64)}
        proto = model([helper.make_node(op, names, outputs)], {"x": [1, 4, 1]}, ["y"], numbers, opset)
        with pytest.raises(CompileError, match=f"must be one number, not {count}"):
            import_onnx(proto)


def test_an_empty_input_of_absurd_dimensions_is_refused() -> None:
    node = helper.make_node("ReduceSum", ["x", "axes"], ["y"])
    proto = model([node], {"x": [2, 3]}, ["y"])
    proto.graph.input.append(helper.make_tensor_value_info("axes", TensorProto.INT64, [0, 2**62, 2**62]))
    with pytest.raises(CompileError):
        import_onnx(proto)
