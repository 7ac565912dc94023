"""The command line as a user meets it: verbs, JSON, errors, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from support.models import model, perceptron, perceptron_reference


def everport(*args: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "everport.cli.main", *map(str, args)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    onnx.save(perceptron(), path / "mlp.onnx")
    done = everport("compile", "mlp.onnx", "--json", cwd=path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["package"] == "mlp.everport"
    np.save(path / "x.npy", np.arange(12, dtype=np.float32).reshape(2, 6))
    return path


def test_run_writes_right_numbers(folder: Path) -> None:
    done = everport("run", "mlp.everport", "--input", "x=x.npy", "--outputs", "y.npz", "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "y.npz")["y"], perceptron_reference(np.load(folder / "x.npy")), rtol=1e-5)
    assert json.loads(done.stdout)["outputs"][0]["shape"] == [2, 3]


def test_bench_json(folder: Path) -> None:
    done = everport("bench", "mlp.everport", "--runs", 3, "--threads", 1, "--json", cwd=folder)
    result = json.loads(done.stdout)
    assert len(result["times_s"]) == 3 and result["load_s"] > 0 and result["rss_kb"] > 0 and result["kernels"]


@pytest.mark.parametrize("stage", ["relax", "graph", "tir", "scheduled", "lowered", "llvm", "asm", "program"])
def test_every_stage_prints(folder: Path, stage: str) -> None:
    done = everport("inspect", "mlp.onnx", "--stage", stage, cwd=folder)
    assert done.returncode == 0, done.stderr
    assert len(done.stdout) > 100


def test_inspect_package_memory_and_passes(folder: Path) -> None:
    assert "input   x: f32[batch, 6]" in everport("inspect", "mlp.everport", cwd=folder).stdout
    done = everport("inspect", "mlp.everport", "--memory", "--dim", "batch=100", "--json", cwd=folder)
    assert json.loads(done.stdout)["arena_bytes"] == 6400
    done = everport("inspect", "mlp.onnx", "--passes", "canonicalize,dead_code", cwd=folder)
    assert "matmul" in done.stdout
    done = everport("inspect", "mlp.onnx", "--passes", "canonicalise", cwd=folder)
    assert done.returncode == 1 and "did you mean 'canonicalize'?" in done.stderr


def test_check_agrees(folder: Path) -> None:
    result = json.loads(everport("check", "mlp.onnx", "--dim", "batch=4", "--json", cwd=folder).stdout)
    assert result["ok"] and result["outputs"][0]["error"] < 1e-4


def test_ops_and_doctor(folder: Path) -> None:
    rows = json.loads(everport("ops", "--json", cwd=folder).stdout)
    assert {"domain": "ai.onnx", "op": "Conv", "newest": 22, "how": "converter", "since": [1]} in rows
    assert json.loads(everport("doctor", "--json", cwd=folder).stdout)["host"].startswith("cpu:")


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["compil", "x"], 2, "did you mean 'compile'?"),
        (["compile"], 2, "Missing argument 'MODEL'"),
        (["compile", "mlp.onnx", "--targt", "cpu"], 2, "--target"),
        (["compile", "nowhere.onnx"], 1, "there is no file 'nowhere.onnx'"),
        (["compile", "x.npy"], 1, "not an ONNX model"),
        (["compile", "mlp.onnx", "--target", "cpuu"], 1, "did you mean 'cpu'?"),
        (["compile", "mlp.onnx", "--dim", "bach=2"], 1, "did you mean 'batch'?"),
        (["compile", "mlp.onnx", "--dim", "batch"], 2, "NAME=N"),
        (["compile", "mlp.onnx", "-o", "no/such/folder/m.everport"], 1, "does not exist"),
        (["run", "mlp.everport"], 1, "no inputs"),
        (["run", "mlp.everport", "--input", "z=x.npy"], 1, "no input 'z'"),
        (["run", "mlp.onnx", "--random"], 1, "not a valid package"),
        (["inspect", "mlp.onnx", "--stage", "tir", "--kernel", "fused_matmul"], 1, "did you mean"),
    ],
)
def test_errors_say_what_to_do(folder: Path, args: list[str], code: int, words: str) -> None:
    done = everport(*args, cwd=folder)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_wrong_shape_names_the_axis(folder: Path) -> None:
    np.save(folder / "wrong.npy", np.zeros((2, 7), np.float32))
    done = everport("run", "mlp.everport", "--input", "x=wrong.npy", cwd=folder)
    assert done.returncode == 1
    assert "input 'x' has the shape [2, 7], the model takes [batch, 6]: axis 1: expected 6, got 7" in done.stderr


def test_unsupported_lists_all_nodes(folder: Path) -> None:
    nodes = [
        helper.make_node("NonZero", ["x"], ["a"], name="first"),
        helper.make_node("Unique", ["x"], ["b"], name="second"),
    ]
    onnx.save(model(nodes, {"x": [2, 2]}, ["a", "b"]), folder / "bad.onnx")
    done = everport("compile", "bad.onnx", "--json", cwd=folder)
    message = json.loads(done.stdout)["message"]
    assert done.returncode == 1 and "'first'" in message and "'second'" in message


def test_debug_shows_the_trace(folder: Path) -> None:
    done = everport("compile", "nowhere.onnx", cwd=folder, EVERPORT_DEBUG="1")
    assert "Traceback" in done.stderr


def test_package_runs_alone(folder: Path) -> None:
    command = [sys.executable, "-I", "mlp.everport", "--input", "x.npy", "--output", "alone.npz"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(folder / "alone.npz")["y"], perceptron_reference(np.load(folder / "x.npy")), rtol=1e-5)
    done = subprocess.run([sys.executable, "-I", "mlp.everport", "--self-test"], cwd=folder, capture_output=True, text=True, check=False)
    assert "self test passed" in done.stdout
