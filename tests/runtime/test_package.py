"""Writing and reading: the container, safetensors, the host program's arithmetic, and packages run by themselves."""

from __future__ import annotations

import ctypes
import json
import os
import random
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.models import perceptron, perceptron_reference

import everport
from everport.codegen.llvm.build import build_library
from everport.runtime import RunError, safetensors
from everport.runtime import program as programs
from everport.runtime.archive import Archive, write_archive
from everport.runtime.model import _Call, _Error, _Tensor, open_library
from everport.targets import parse_target


@settings(max_examples=40, derandomize=True, deadline=None)
@given(st.dictionaries(st.text("abcXYZ_", min_size=1, max_size=90), st.binary(max_size=300), min_size=1, max_size=8))
def test_archive_round_trip(tmp_path_factory: pytest.TempPathFactory, content: dict[str, bytes]) -> None:
    folder = tmp_path_factory.mktemp("zip")
    for name in ("one", "two"):
        write_archive(folder / name, [(n, len(d), [d[:7], d[7:]]) for n, d in content.items()])
    assert (folder / "one").read_bytes() == (folder / "two").read_bytes()
    archive = Archive(folder / "one")
    assert {n: archive.read(n) for n in archive.entries} == content
    assert all(start % 64 == 0 for start, _ in archive.entries.values())
    with zipfile.ZipFile(folder / "one") as z:
        assert z.testzip() is None and {n: z.read(n) for n in z.namelist()} == content


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "m.everport"
    path.write_bytes(b"old")
    with pytest.raises(ValueError, match="were announced"):
        write_archive(path, [("a", 3, [b"12"])])
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["m.everport"]


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["u8", "i16", "f32", "f64", "bool"]), st.lists(st.integers(0, 5), max_size=3)), max_size=6))
def test_safetensors_round_trip(tensors: list[tuple[str, list[int]]]) -> None:
    arrays = []
    for k, (kind, shape) in enumerate(tensors):
        t = {"u8": np.uint8, "i16": np.int16, "f32": np.float32, "f64": np.float64, "bool": np.bool_}[kind]
        arrays.append((np.random.default_rng(k).integers(0, 2, shape) * 3).astype(t))
    names = [f"t{k}" for k in range(len(arrays))]
    header, size = safetensors.layout(
        (n, kind, a.shape, a.nbytes) for n, (kind, _), a in zip(names, tensors, arrays, strict=True)
    )
    data = b"".join(safetensors.chunks(header, arrays))
    assert len(data) == len(header) + size and len(header) % 64 == 0
    found, start = safetensors.read(memoryview(data), "test")
    for n, (kind, _), a in zip(names, tensors, arrays, strict=True):
        dtype, shape, begin, end = found[n]
        assert (dtype, shape, begin % 64) == (safetensors.TYPES[kind], a.shape, 0)
        assert data[start + begin : start + end] == a.tobytes()


# -- the host program natively ------------------------------------------------------------------------------------------------

NAMES = ("a", "b", "c")


def expression(source: random.Random, depth: int) -> programs.IntExpr:
    if depth == 0 or source.random() < 0.15:
        return source.choice([*NAMES, source.randrange(-9, 10), 0, 1])
    op = source.choice([*programs.BINARY, "not", "select"])
    count = {"not": 1, "select": 3}.get(op, 2)
    return (op, *(expression(source, depth - 1) for _ in range(count)))


def test_native_arithmetic_is_that_of_the_interpreter(tmp_path: Path) -> None:
    """Every operator, floor division and remainder by negative numbers and by 0 included: registers reach the error's fields."""
    source = random.Random(0)
    exprs = [expression(source, 4) for _ in range(150)]
    dims = tuple(programs.Dim(n, 0, k) for k, n in enumerate(NAMES))
    # The fourth dimension chooses the check that fails; it reports a pair of expressions.
    chosen = programs.Dim("chosen", 0, 3)
    checks = tuple(
        programs.Check(("!=", "chosen", k), 0, 0, e, exprs[-1 - k], f"check {k}") for k, e in enumerate(exprs)
    )
    spec = programs.TensorSpec("x", "f32", (*NAMES, "chosen"))
    program = programs.Program((spec,), (), (), (), (), 0, (*dims, chosen, *checks))
    programs.verify(program)
    library = open_library(build_library({}, program, parse_target("cpu")).data, "arithmetic")
    call, error, tensor = _Call(), _Error(), (_Tensor * 1)()
    for values in [(1, 2, 3), (0, 0, 0), (7, 3, 2), (13, 5, 8), (100, 1, 9)]:
        for k in range(len(exprs)):
            shape = (ctypes.c_int64 * 4)(*values, k)
            tensor[0].shape, tensor[0].rank, tensor[0].dtype = ctypes.addressof(shape), 4, programs.DTYPES.index("f32")
            code = library.everport_run(ctypes.byref(call), tensor, None, ctypes.byref(error))
            registers = dict(zip(NAMES, values, strict=True)) | {"chosen": k}
            assert (code, error.check) == (3, k)
            assert error.expected == programs.evaluate(exprs[k], registers), (exprs[k], values)
            assert error.actual == programs.evaluate(exprs[-1 - k], registers), (exprs[-1 - k], values)


def test_programs_round_trip_as_json(package: Path) -> None:
    with zipfile.ZipFile(package) as z:
        data = json.loads(z.read("program.json"))
    assert programs.to_json(programs.from_json(data)) == data


# -- a package by itself ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everport.compile(perceptron(), output=tmp_path_factory.mktemp("alone") / "m.everport")


def alone(package: Path, folder: Path, *options: str) -> Any:
    """Runs the package from another folder with nothing of this project importable (-I, and no installed everport)."""
    code = (
        "import runpy, sys\n"
        "sys.meta_path[:] = [f for f in sys.meta_path if 'editable' not in getattr(f, '__module__', '') + repr(f).lower()]\n"
        f"sys.argv = [{str(package)!r}, *sys.argv[1:]]\n"
        f"runpy.run_path({str(package)!r}, run_name='__main__')\n"
        "import everport\n"
        f"assert {str(package)!r} in everport.__path__[0], everport.__path__\n"
        "assert not {'llvmlite', 'onnx', 'click'} & set(sys.modules)\n"
    )
    return subprocess.run(
        [sys.executable, "-I", "-c", code, *options], cwd=folder, capture_output=True, text=True, check=False
    )


def test_by_itself(package: Path, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    for option in ("x.npy", "x=x.npy"):
        done = alone(package, tmp_path, "--input", option, "--output", "y.npz")
        assert done.returncode == 0, done.stderr
        with np.load(tmp_path / "y.npz") as made:
            np.testing.assert_allclose(made["y"], perceptron_reference(x), rtol=1e-4, atol=1e-5)
    assert "self test passed" in alone(package, tmp_path, "--self-test").stdout
    assert "x: f32[batch, 6]" in alone(package, tmp_path, "--info").stdout
    first, second = (alone(package, tmp_path, "--random", "--seed", "4").stdout.splitlines()[0] for _ in range(2))
    assert first == second and first.startswith("y: float32")


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (None, ("--input", "none.npy"), "cannot be read"),
        (b"", ("--input", "x.npy"), "cannot be read"),
        (b"junk", ("--input", "x.npy"), "cannot be read"),
        (np.zeros((2, 6)), ("--input", "x.npy"), "must be float32"),
        (np.zeros((2, 6), np.float32), ("--input", "q=x.npy"), "no input 'q'"),
        (np.zeros((2, 6), np.float32), ("--input", "x.npy", "--threads", "0"), "positive"),
    ],
)
def test_errors_without_a_traceback(package: Path, tmp_path: Path, content: Any, options: tuple[str, ...], words: str) -> None:
    if isinstance(content, bytes):
        (tmp_path / "x.npy").write_bytes(content)
    elif content is not None:
        np.save(tmp_path / "x.npy", content)
    done = alone(package, tmp_path, *options)
    assert done.returncode == 1 and words in done.stderr and "Traceback" not in done.stderr


def test_errors_have_codes(package: Path) -> None:
    with everport.load(package, threads=1) as model, pytest.raises(RunError) as caught:
        model(np.zeros((1, 7), np.float32))
    assert caught.value.code == "shape"


def test_importing_the_runtime_takes_numpy_alone() -> None:
    code = "import everport.runtime, sys\nassert not {'onnx', 'llvmlite', 'ml_dtypes', 'click'} & set(sys.modules)"
    src = Path(__file__).resolve().parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(src)}
    assert subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
