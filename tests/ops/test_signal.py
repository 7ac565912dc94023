"""Fourier transforms from the model file to compiled results, against numpy's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.models import run_compiled

from everport.ir.errors import UnsupportedError


def ran(op: str, inputs: dict[str, Any], constants: dict[str, Any], names: list[str], folder: Path, **attributes: Any) -> np.ndarray:
    """The one output; `constants` are initializers, `names` the node's inputs in order."""
    graph = helper.make_graph(
        [helper.make_node(op, names, ["y"], **attributes)],
        "signal",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), ["batch", *a.shape[1:]]) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor(n, TensorProto.INT64 if np.asarray(v).dtype.kind == "i" else TensorProto.FLOAT, np.shape(v), np.ravel(v)) for n, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return run_compiled(model, inputs, folder)["y"]


def parts(z: np.ndarray) -> np.ndarray:
    return np.stack([z.real, z.imag], -1)


def signal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("n", [1, 2, 5, 7, 9])
@pytest.mark.parametrize("axis", [1, -2])
def test_lengths_and_axes(n: int, axis: int, tmp_path: Path) -> None:
    x = signal(3, 7, 6, 2)
    z = x[..., 0] + 1j * x[..., 1]
    names, constants = ["x", "n", "axis"], {"n": n, "axis": axis}
    axis = axis % 4  # numpy sees no axis of parts
    np.testing.assert_allclose(ran("DFT", {"x": x}, constants, names, tmp_path), parts(np.fft.fft(z, n, axis)), 1e-4, 1e-5)
    inverse = ran("DFT", {"x": x}, constants, names, tmp_path, inverse=1)
    np.testing.assert_allclose(inverse, parts(np.fft.ifft(z, n, axis)), 1e-4, 1e-5)
    real = ran("DFT", {"x": x[..., :1]}, constants, names, tmp_path, onesided=1)
    np.testing.assert_allclose(real, parts(np.fft.rfft(x[..., 0], n, axis)), 1e-4, 1e-5)
    back = ran("DFT", {"x": x}, constants, names, tmp_path, onesided=1, inverse=1)
    np.testing.assert_allclose(back[..., 0], np.fft.irfft(z, n, axis), 1e-4, 1e-5)


def test_short_time_transform(tmp_path: Path) -> None:
    x, window = signal(2, 50, 1), np.hanning(16).astype(np.float32)
    y = ran("STFT", {"x": x}, {"step": 6, "w": window}, ["x", "step", "w"], tmp_path)
    frames = np.stack([x[:, s : s + 16, 0] * window for s in range(0, 35, 6)], 1)
    np.testing.assert_allclose(y, parts(np.fft.rfft(frames)), 1e-4, 1e-5)


def test_symbolic_lengths_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError) as error:
        ran("DFT", {"x": signal(3, 4, 1)}, {"axis": 0}, ["x", "", "axis"], tmp_path)
    assert any("the length of a Fourier transform must be known at compile time" in note for note in error.value.notes)


def test_what_the_standard_leaves_out_is_refused(tmp_path: Path) -> None:
    for x, constants, attributes, reason in (
        (signal(1, 4, 2), {"axis": 1}, {"onesided": 1}, "one-sided"),
        (signal(1, 4, 3), {"axis": 1}, {}, "neither 1 nor 2"),
        (signal(1, 4, 2), {"axis": 2}, {}, "along the axis of real and imaginary parts"),
    ):
        with pytest.raises(UnsupportedError) as error:
            ran("DFT", {"x": x}, constants, ["x", "", "axis"], tmp_path, **attributes)
        assert any(reason in note for note in error.value.notes)
