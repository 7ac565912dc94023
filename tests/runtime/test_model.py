"""Loading and calling packages: arguments, outputs, threads, forks, and the C interface."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.models import perceptron, perceptron_reference

import everport
from everport.runtime import Model, RunError, load

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everport.compile(perceptron(), output=tmp_path_factory.mktemp("runtime") / "m.everport")


@pytest.fixture
def model(package: Path) -> Model:
    return load(package, threads=2)


def batch(n: int) -> np.ndarray:
    return np.random.default_rng(n).standard_normal((n, 6)).astype(np.float32)


def test_call_and_run(model: Model) -> None:
    x = batch(4)
    np.testing.assert_allclose(model(x), perceptron_reference(x), rtol=1e-5, atol=1e-6)
    assert list(model.run({"x": x})) == ["y"]
    assert model.inputs[0].shape == ("batch", 6) and model.outputs[0].shape == ("batch", 3)
    assert model.memory["weights"] > 0 and "batch" in model.memory["arena"]


def test_outputs_given(model: Model) -> None:
    x, y = batch(4), np.empty((4, 3), np.float32)
    assert model.run({"x": x}, outputs={"y": y})["y"] is y
    np.testing.assert_allclose(y, perceptron_reference(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(RunError, match="output 'y', axis 0: expected 4, the given array has 5"):
        model.run({"x": x}, outputs={"y": np.empty((5, 3), np.float32)})
    with pytest.raises(RunError, match="must be a float32 array"):
        model.run({"x": x}, outputs={"y": np.empty((4, 3))})
    both = np.zeros((4, 6), np.float32)
    with pytest.raises(RunError, match="overlaps an input"):
        model.run({"x": both}, outputs={"y": both.reshape(-1)[:12].reshape(4, 3)})
    frozen = np.empty((4, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(RunError, match="writeable"):
        model.run({"x": x}, outputs={"y": frozen})


def test_arguments_are_checked(model: Model) -> None:
    with pytest.raises(RunError, match="must be float32"):
        model(batch(2).astype(np.float64))
    with pytest.raises(RunError, match="must have 2 dimensions"):
        model(np.zeros(6, np.float32))
    with pytest.raises(RunError, match="axis 1: expected 6, got 5"):
        model(np.zeros((2, 5), np.float32))
    with pytest.raises(RunError, match="did you mean 'x'"):
        model.run({"X": batch(1)})
    with pytest.raises(RunError, match="missing input 'x'"):
        model.run({})
    with pytest.raises(RunError, match="takes 1 inputs"):
        model()
    with pytest.raises(RunError, match="must be an array"):
        model([[1.0] * 6])


def test_strided_and_dlpack_inputs(model: Model) -> None:
    wide = np.asfortranarray(batch(8))
    np.testing.assert_allclose(model(wide[::2]), perceptron_reference(wide[::2]), rtol=1e-5, atol=1e-6)

    class Tensor:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self, **options: object) -> object:
            return self.array.__dlpack__(**options)

        def __dlpack_device__(self) -> object:
            return self.array.__dlpack_device__()

    x = batch(3)
    np.testing.assert_allclose(model(Tensor(x)), perceptron_reference(x), rtol=1e-5, atol=1e-6)


def test_an_empty_batch_is_refused_by_name(model: Model) -> None:
    with pytest.raises(RunError, match="must be at least 1"):
        model(np.zeros((0, 6), np.float32))


def test_one_thread_starts_none(package: Path) -> None:
    before = threading.active_count(), len(os.listdir("/proc/self/task"))
    with load(package, threads=1) as single:
        single(batch(64))
        assert threading.active_count() <= before[0]
        assert len(os.listdir("/proc/self/task")) <= before[1]  # fewer where threads of an earlier test were just ending


def test_many_callers(model: Model) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        for k in range(40):
            x = batch(1 + (seed * 7 + k) % 90)
            if not np.allclose(model(x), perceptron_reference(x), 1e-4, 1e-5):
                wrong.append(seed)

    callers = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert not wrong


def test_after_a_fork(model: Model) -> None:
    x = batch(64)
    expected = model(x)
    child = os.fork()
    if child == 0:
        os._exit(0 if np.array_equal(model(x), expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_closed(package: Path) -> None:
    with load(package) as model:
        model(batch(1))
    with pytest.raises(RunError, match="closed"):
        model(batch(1))


def test_thread_count_from_the_environment(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERPORT_NUM_THREADS", "3")
    with load(package) as model:
        assert model.threads == 3
    monkeypatch.setenv("EVERPORT_NUM_THREADS", "many")
    with pytest.raises(RunError, match="positive integer"):
        load(package)


def test_profile_and_self_test(model: Model) -> None:
    rows = model.profile({"x": batch(8)}, runs=2)
    assert len(rows) == len(model.program.launches) and all(r["seconds"] > 0 for r in rows)
    assert model.self_test() < 1e-4


C_PROGRAM = """
#include "everport.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static void *give(void *user, int32_t output, const int64_t *shape, int32_t rank, int64_t bytes) {
  return aligned_alloc(64, (bytes + 64) / 64 * 64);
}
int main(int argc, char **argv) {
  FILE *file = fopen(argv[1], "rb");
  fseek(file, 0, SEEK_END); long size = ftell(file); rewind(file);
  char *weights = aligned_alloc(64, (size + 64) / 64 * 64);
  if (fread(weights, 1, size, file) != (size_t)size) return 9;
  int64_t header; memcpy(&header, weights, 8);
  char *base = aligned_alloc(64, (size + 64) / 64 * 64);
  memcpy(base, weights + 8 + header, size - 8 - header);
  float x[12]; for (int i = 0; i < 12; i++) x[i] = i * 0.25f;
  int64_t in_shape[2] = {2, 6}, out_shape[2];
  everport_tensor in = {x, in_shape, 2, EVERPORT_F32}, out = {0, out_shape, 2, EVERPORT_F32};
  everport_call call = {base, 0, 0, give, 0, everport_pool_create(2), 0};
  everport_error error;
  if (everport_abi_version() != EVERPORT_ABI_VERSION) return 8;
  if (everport_run(&call, &in, &out, &error)) return 7;
  for (int i = 0; i < out_shape[0] * out_shape[1]; i++) printf("%.6f\\n", ((float *)out.data)[i]);
  in_shape[1] = 5;
  if (everport_run(&call, &in, &out, &error) != EVERPORT_BAD_CHECK || error.axis != 1 || error.expected != 6) return 6;
  everport_pool_destroy(call.pool);
  return 0;
}
"""


@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler on this machine")
def test_c_interface(package: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(package) as z:
        (tmp_path / "libmodel.so").write_bytes(z.read("cpu/model.so"))
        (tmp_path / "weights.safetensors").write_bytes(z.read("weights.safetensors"))
    (tmp_path / "main.c").write_text(C_PROGRAM)
    include = f"-I{ROOT / 'runtime' / 'include'}"
    subprocess.run(["cc", "-std=c11", include, "main.c", "./libmodel.so", "-o", "main"], cwd=tmp_path, check=True)
    done = subprocess.run(["./main", "weights.safetensors"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    got = np.array([float(v) for v in done.stdout.split()]).reshape(2, 3)
    x = (np.arange(12, dtype=np.float32) * 0.25).reshape(2, 6)
    np.testing.assert_allclose(got, perceptron_reference(x), rtol=1e-4, atol=1e-5)
