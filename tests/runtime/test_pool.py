"""The thread pool on its own: partition, nesting, several callers, closing, too few threads, forks."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support.models import perceptron, perceptron_reference

import everport
from everport.codegen.llvm.build import compile_texts
from everport.codegen.llvm.link import link_library
from everport.codegen.llvm.pool import pool_text
from everport.runtime import Model, RunError, load
from everport.runtime.model import open_library
from everport.targets import parse_target

NAMES = ("everport_parallel", "everport_pool_create", "everport_pool_destroy", "count", "nested")
# count: adds 1 to each counter of its share, and 1000 to the first one of it. nested: each of its steps is a parallel loop.
BODIES = """
define void @count(ptr %buffers, ptr %ints, i64 %begin, i64 %end) {
entry:
  %data = load ptr, ptr %buffers
  %first = getelementptr i64, ptr %data, i64 %begin
  %head = atomicrmw add ptr %first, i64 1000 seq_cst
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  %where = getelementptr i64, ptr %data, i64 %i
  %old = atomicrmw add ptr %where, i64 1 seq_cst
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
declare void @everport_parallel(ptr, ptr, ptr, ptr, i64)
define void @nested(ptr %buffers, ptr %ints, i64 %begin, i64 %end) {
entry:
  %pool = load ptr, ptr %ints
  br label %loop
loop:
  %i = phi i64 [ %begin, %entry ], [ %next, %loop ]
  call void @everport_parallel(ptr %pool, ptr @count, ptr %buffers, ptr %ints, i64 10)
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %end
  br i1 %more, label %loop, label %done
done:
  ret void
}
"""


@pytest.fixture(scope="module")
def library() -> ctypes.CDLL:
    target = parse_target("cpu")
    objects, _ = compile_texts([pool_text(target), BODIES], target, 2)
    lib = open_library(link_library(objects, target, NAMES), "the pool")
    lib.everport_parallel.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_int64]
    lib.everport_parallel.restype = None
    lib.everport_pool_create.argtypes, lib.everport_pool_create.restype = [ctypes.c_int32], ctypes.c_void_p
    lib.everport_pool_destroy.argtypes, lib.everport_pool_destroy.restype = [ctypes.c_void_p], None
    return lib


@pytest.fixture(params=[2, 3, 7])
def pool(library: ctypes.CDLL, request: pytest.FixtureRequest) -> Iterator[tuple[int, int]]:
    made = library.everport_pool_create(request.param)
    yield made, request.param
    library.everport_pool_destroy(made)


def parallel(library: ctypes.CDLL, pool: int | None, name: str, counters: np.ndarray, n: int) -> None:
    buffers = (ctypes.c_void_p * 1)(counters.ctypes.data)
    ints = (ctypes.c_int64 * 1)(pool or 0)
    body = ctypes.cast(library[name], ctypes.c_void_p)
    library.everport_parallel(pool, body, ctypes.addressof(buffers), ctypes.addressof(ints), n)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 6, 7, 8, 100, 1001])
def test_each_step_runs_once_in_near_equal_shares(library: ctypes.CDLL, pool: tuple[int, int], n: int) -> None:
    made, threads = pool
    counters = np.zeros(n + 1, np.int64)
    parallel(library, made, "count", counters, n)
    assert (counters[:n] % 1000 == 1).all() and counters[n] == 0
    starts = np.flatnonzero(counters[:n] >= 1000)
    assert len(starts) == min(n, threads)
    if n:
        lengths = np.diff([*starts, n])
        assert lengths.max() - lengths.min() <= 1


def test_without_a_pool_the_caller_does_it(library: ctypes.CDLL) -> None:
    assert library.everport_pool_create(1) is None and library.everport_pool_create(0) is None
    counters = np.zeros(9, np.int64)
    parallel(library, None, "count", counters, 9)
    assert counters.tolist() == [1001] + [1] * 8
    library.everport_pool_destroy(None)


def test_a_nested_loop_runs_on_its_own_thread(library: ctypes.CDLL, pool: tuple[int, int]) -> None:
    counters = np.zeros(10, np.int64)
    parallel(library, pool[0], "nested", counters, 50)
    assert counters.tolist() == [50 * 1001] + [50] * 9


def test_several_callers_share_one_pool(library: ctypes.CDLL, pool: tuple[int, int]) -> None:
    results: list[bool] = []

    def caller() -> None:
        counters = np.zeros(64, np.int64)
        for _ in range(300):
            parallel(library, pool[0], "count", counters, 64)
        results.append(bool((counters % 1000 == 300).all()))

    callers = [threading.Thread(target=caller) for _ in range(4)]
    for c in callers:
        c.start()
    for c in callers:
        c.join()
    assert results == [True] * 4


def test_destroy_ends_the_threads(library: ctypes.CDLL) -> None:
    gc.collect()  # models of other tests
    before = len(os.listdir("/proc/self/task"))
    for _ in range(30):
        made = library.everport_pool_create(4)
        counters = np.zeros(4, np.int64)
        parallel(library, made, "count", counters, 4)
        library.everport_pool_destroy(made)
        assert counters.tolist() == [1001] * 4
    library.everport_pool_destroy(library.everport_pool_create(4))  # never used
    for _ in range(200):  # a thread that has been joined is listed for a moment longer
        if len(os.listdir("/proc/self/task")) <= before:
            break
        time.sleep(0.01)
    assert len(os.listdir("/proc/self/task")) <= before


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everport.compile(perceptron(), output=tmp_path_factory.mktemp("pool") / "m.everport")


def test_closing_below_running_calls(package: Path) -> None:
    x = np.ones((64, 6), np.float32)
    expected = perceptron_reference(x)
    for _ in range(20):
        model = load(package, threads=2)
        outcome: list[str] = []

        def caller(model: Model = model, outcome: list[str] = outcome) -> None:
            try:
                while True:
                    if not np.allclose(model(x), expected, 1e-4, 1e-5):
                        outcome.append("wrong")
                        return
            except RunError as error:
                outcome.append(str(error))

        callers = [threading.Thread(target=caller) for _ in range(3)]
        for c in callers:
            c.start()
        model.close()
        for c in callers:
            c.join()
        assert outcome == ["the model is closed"] * 3 and model._pool is None


EXHAUSTED = """
import resource, sys
import numpy as np
from everport.runtime import load
model = load(sys.argv[1], threads=64)
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (30 << 20), used + (30 << 20)))  # room for a few stacks of 8 MB
import os
print(model(np.ones((64, 6), np.float32)).sum(), len(os.listdir("/proc/self/task")))
"""


def test_where_threads_cannot_be_made(package: Path) -> None:
    src = Path(__file__).resolve().parents[2] / "src"
    environment = {**os.environ, "PYTHONPATH": str(src), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", EXHAUSTED, str(package)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    total, threads = done.stdout.split()
    assert int(threads) < 64
    assert float(total) == pytest.approx(float(perceptron_reference(np.ones((64, 6), np.float32)).sum()), rel=1e-4)
