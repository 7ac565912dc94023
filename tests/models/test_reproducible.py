"""The same model compiled twice gives the same bytes; one package serves every size."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.models import perceptron, perceptron_reference

import everport


def test_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a = everport.compile(perceptron(), output=tmp_path / "a.everport").read_bytes()
    monkeypatch.setenv("EVERPORT_NO_CACHE", "1")
    b = everport.compile(perceptron(), output=tmp_path / "b.everport").read_bytes()
    assert a == b


@pytest.mark.parametrize("opt", [0, 1, 2, 3])
def test_every_size(tmp_path: Path, opt: int) -> None:
    path = everport.compile(perceptron(), output=tmp_path / "m.everport", opt=opt)
    with everport.load(path, threads=2) as model:
        for batch in (1, 2, 3, 5, 6, 7, 12, 13, 64, 101):
            x = np.random.default_rng(batch).standard_normal((batch, 6)).astype(np.float32)
            np.testing.assert_allclose(model(x), perceptron_reference(x), rtol=1e-4, atol=1e-5)


def test_dims_are_enforced(tmp_path: Path) -> None:
    path = everport.compile(perceptron(), output=tmp_path / "m.everport", dims={"batch": "2..8"})
    with everport.load(path) as model:
        assert model(np.zeros((8, 6), np.float32)).shape == (8, 3)
        with pytest.raises(everport.RunError, match="must be at most 8"):
            model(np.zeros((9, 6), np.float32))
        with pytest.raises(everport.RunError, match="must be at least 2"):
            model(np.zeros((1, 6), np.float32))
    fixed = everport.compile(perceptron(), output=tmp_path / "f.everport", dims={"batch": 4})
    with everport.load(fixed) as model:
        assert model.inputs[0].shape == (4, 6)


def test_check_names_the_reference() -> None:
    result = everport.check(perceptron())
    assert result.ok and result.reference.startswith("ONNX Runtime")
