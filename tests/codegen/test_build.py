"""Objects, their cache, and linking."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
from support.native import native

from everport.codegen.llvm import cache, link
from everport.codegen.llvm.build import compile_texts, kernel_symbol
from everport.codegen.llvm.link import find_linker, link_library
from everport.codegen.llvm.object import assembly, compile_object, optimized_text
from everport.ir.dtype import f16, f32
from everport.ir.errors import CompileError
from everport.targets import host_level, parse_target
from everport.tir.build import FuncBuilder
from everport.tir.expr import cast, const
from everport.tir.func import PrimFunc
from everport.tir.intrin import call
from everport.tir.lower import lower

TARGET = parse_target("cpu")
ADD = "define i32 @add(i32 %a, i32 %b) {\n  %c = add i32 %a, %b\n  ret i32 %c\n}\n"


def scaled(factor: float = 2.0, name: str = "scale") -> PrimFunc:
    b = FuncBuilder(name)
    x = b.input("x", (64,), f32)
    b.output(b.compute("y", (64,), f32, lambda i: x[i] * const(factor, f32)))
    return b.finish()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERPORT_CACHE", str(tmp_path))
    monkeypatch.setattr(cache, "_warned", False)
    return tmp_path


def entries(folder):
    return sorted(folder.rglob("*.o"))


def test_equal_kernels_have_equal_symbols() -> None:
    first, second = kernel_symbol(lower(scaled())), kernel_symbol(lower(scaled(name="another")))
    assert first == second
    assert kernel_symbol(lower(scaled(3.0)))[0] != first[0]


def test_the_cache_is_read_and_verified(folder) -> None:
    objects, hits = compile_texts([ADD], TARGET, 2)
    assert hits == 0 and len(entries(folder)) == 1
    assert compile_texts([ADD], TARGET, 2) == (objects, 1)
    entries(folder)[0].write_bytes(b"rubbish" * 20)
    assert compile_texts([ADD], TARGET, 2) == (objects, 0)  # made anew, and right again
    assert compile_texts([ADD], TARGET, 2) == (objects, 1)
    assert compile_texts([ADD], TARGET, 1)[1] == 0  # another optimisation level is another entry
    assert compile_texts([ADD], parse_target("cpu:x86-64-v2"), 2)[1] == 0


def test_a_cache_that_cannot_be_written_only_warns_once(folder, monkeypatch) -> None:
    (folder / "kernels").write_text("a file where a folder should be")
    with pytest.warns(UserWarning, match="cannot be written"):
        compile_texts([ADD], TARGET, 2)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert compile_texts([ADD], TARGET, 2)[1] == 0


def test_several_compilers_share_a_cache(folder) -> None:
    results: list[tuple[list[bytes], int]] = []
    threads = [threading.Thread(target=lambda: results.append(compile_texts([ADD], TARGET, 2))) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 4 and all(objects == results[0][0] for objects, _ in results)
    assert len(entries(folder)) == 1 and not list(folder.rglob(".new-*"))


def test_worker_processes_give_the_same_objects(folder, monkeypatch) -> None:
    texts = [ADD.replace("@add", f"@add{k}") for k in range(4)]
    alone = [compile_object(t, TARGET) for t in texts]
    monkeypatch.setattr("everport.codegen.llvm.build.PARALLEL_FROM", 0)
    monkeypatch.setenv("EVERPORT_JOBS", "2")
    seen: list[tuple[int, int]] = []
    assert compile_texts(texts, TARGET, 2, lambda done, total: seen.append((done, total))) == (alone, 0)
    assert seen[-1] == (4, 4)


def test_invalid_text_is_a_compile_error() -> None:
    with pytest.raises(CompileError, match="not valid"):
        compile_object("define i32 @f() { ret float 0.0 }", TARGET)


def test_assembly_and_optimized_text() -> None:
    assert "add" in assembly(ADD, TARGET) and "define" in optimized_text(ADD, TARGET)


def linkers() -> list[str]:
    return [name for name in ("ld", "cc") if shutil.which(name)] + ["ziglang"]


@pytest.mark.parametrize("name", linkers())
def test_every_linker_makes_a_library_that_runs(name: str, monkeypatch) -> None:
    if name == "ziglang":
        pytest.importorskip("ziglang")
    monkeypatch.setenv("EVERPORT_LINKER", name)
    b = FuncBuilder("sines")
    x = b.input("x", (64,), f32)
    b.output(b.compute("y", (64,), f32, lambda i: call("sin", x[i])))
    data = np.linspace(0, 1, 64, dtype=np.float32)
    assert np.allclose(native(b.finish(), [data])[0], np.sin(data), 1e-6)


def test_linking_is_reproducible_and_names_what_it_needs() -> None:
    text = "declare float @sinf(float)\ndefine float @f(float %x) {\n  %y = call float @sinf(float %x)\n  ret float %y\n}\n"
    data = compile_object(text, TARGET)
    first = link_library([data], TARGET, ["f"])
    assert first == link_library([data], TARGET, ["f"])
    assert b"libm.so.6" in first and b"libc.so.6" not in first
    assert b"/tmp" not in first and b"/home" not in first


def test_an_undefined_symbol_is_an_error_now() -> None:
    data = compile_object("declare void @nowhere()\ndefine void @f() {\n  call void @nowhere()\n  ret void\n}\n", TARGET)
    with pytest.raises(CompileError, match="nowhere"):
        link_library([data], TARGET, ["f"])


def test_without_a_linker_the_error_names_them(monkeypatch) -> None:
    monkeypatch.delenv("EVERPORT_LINKER", raising=False)
    monkeypatch.setattr(link.shutil, "which", lambda name: None)
    monkeypatch.setattr(link.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompileError, match=r"neither ld nor cc .* ziglang"):
        find_linker(TARGET)
    monkeypatch.setenv("EVERPORT_LINKER", "lld-of-mine")
    with pytest.raises(CompileError, match="lld-of-mine"):
        find_linker(TARGET)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_every_level_converts_halves(level: str) -> None:
    target = parse_target(f"cpu:{level}")
    if not set(target.features) <= set(host_level().features):
        pytest.skip(f"this machine is no {level}")
    halves = np.arange(65536, dtype=np.uint16).view(np.float16)
    b = FuncBuilder("halves")
    x, y = b.input("x", (65536,), f16), b.input("y", (65536,), f32)
    b.output(b.compute("up", (65536,), f32, lambda i: cast(x[i], f32)))
    b.output(b.compute("down", (65536,), f16, lambda i: cast(y[i], f16)))
    with np.errstate(all="ignore"):
        singles = halves.astype(np.float32)
        between = singles + np.spacing(halves).astype(np.float32) / 2  # ties
        expected = between.astype(np.float16)
    up, down = native(b.finish(), [halves, between], target=target)
    assert np.array_equal(up, singles, equal_nan=True) and np.array_equal(down, expected, equal_nan=True)


def test_other_processors_compile_and_link() -> None:
    pytest.importorskip("ziglang")
    target = parse_target("cpu:aarch64")
    _, text = kernel_symbol(lower(scaled()))
    from everport.codegen.llvm.pool import pool_text

    library = link_library([compile_object(text, target), compile_object(pool_text(target), target)], target, [])
    assert library[:4] == b"\x7fELF" and library[18] == 183  # EM_AARCH64


def test_a_worker_reports_errors() -> None:
    import pickle

    job = pickle.dumps((["define nonsense"], TARGET, 2))
    done = subprocess.run([sys.executable, "-m", "everport.codegen.llvm.worker"], input=job, capture_output=True, check=True)
    kind, message = pickle.loads(done.stdout)
    assert kind == "error" and "not valid" in message
