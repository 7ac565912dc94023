"""Kernels and host program to one shared library: emitted, compiled in worker processes or taken from the cache, linked."""

from __future__ import annotations

import hashlib
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import everport
from everport.codegen.llvm import cache
from everport.codegen.llvm.emit import emit_kernel
from everport.codegen.llvm.entry import EXPORTS, entry_text
from everport.codegen.llvm.half import half_texts
from everport.codegen.llvm.link import link_library
from everport.codegen.llvm.object import compile_object
from everport.codegen.llvm.pool import pool_text
from everport.ir.errors import CompileError
from everport.ir.knobs import JOBS
from everport.runtime.program import Program
from everport.targets import Target
from everport.tir.func import PrimFunc

PARALLEL_FROM = 60_000  # characters of text: below, one process is faster


@dataclass(frozen=True, slots=True)
class Library:
    """A linked library, and how its parts came to be."""

    data: bytes
    symbols: dict[str, str]
    texts: dict[str, str]
    compiled: int
    cached: int


def usable_cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def kernel_symbol(func: PrimFunc) -> tuple[str, str]:
    """Symbol and text of a device function; equal texts give equal symbols."""
    placeholder = emit_kernel(func, "KERNEL")
    symbol = "k_" + hashlib.sha256(placeholder.encode()).hexdigest()[:20]
    return symbol, placeholder.replace("@KERNEL", f"@{symbol}")


def compile_texts(
    texts: Sequence[str], target: Target, opt: int, on_progress: Callable[[int, int], None] | None = None
) -> tuple[list[bytes], int]:
    """Objects of texts in order, and how many came from the cache."""
    keys = [cache.cache_key(t, target, opt) for t in texts]
    found: dict[int, bytes] = {}
    for k, key in enumerate(keys):
        data = cache.read(key)
        if data is not None:
            found[k] = data
    hits = len(found)
    todo = sorted((k for k in range(len(texts)) if k not in found), key=lambda k: -len(texts[k]))
    jobs = min(JOBS.integer() or usable_cores(), len(todo))
    if jobs > 1 and sum(len(texts[k]) for k in todo) > PARALLEL_FROM:
        # Chunks of falling size: few enough to start few processes, small enough to end together.
        chunks = [todo[k::jobs] for k in range(jobs)]
        with ThreadPoolExecutor(jobs) as pool:
            for chunk, objects in zip(chunks, pool.map(lambda c: _in_process([texts[k] for k in c], target, opt), chunks), strict=True):
                for k, data in zip(chunk, objects, strict=True):
                    found[k] = data
                if on_progress is not None:
                    on_progress(len(found), len(texts))
    else:
        for k in todo:
            found[k] = compile_object(texts[k], target, opt)
            if on_progress is not None:
                on_progress(len(found), len(texts))
    for k in todo:
        cache.write(keys[k], found[k])
    return [found[k] for k in range(len(texts))], hits


def _in_process(texts: Sequence[str], target: Target, opt: int) -> list[bytes]:
    environment = dict(os.environ)
    folder = str(Path(everport.__file__).parent.parent)
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, environment.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [sys.executable, "-m", "everport.codegen.llvm.worker"],
        input=pickle.dumps((list(texts), target, opt)),
        capture_output=True,
        env=environment,
        check=False,
    )
    if done.returncode:
        tail = done.stderr.decode(errors="replace").strip().splitlines()[-3:]
        raise CompileError(f"a compiling process ended with code {done.returncode}: {' '.join(tail)}")
    kind, value = pickle.loads(done.stdout)
    if kind == "error":
        raise CompileError(value)
    return value


def build_library(
    kernels: Mapping[str, PrimFunc],
    program: Program,
    target: Target,
    opt: int = 2,
    on_progress: Callable[[int, int], None] | None = None,
) -> Library:
    """The library of a program whose kernels are device functions by name."""
    symbols: dict[str, str] = {}
    texts: dict[str, str] = {}
    for name in program.kernels:
        symbol, text = kernel_symbol(kernels[name])
        symbols[name] = symbol
        texts[symbol] = text
    entry = entry_text(program, [symbols[k] for k in program.kernels])
    support = [pool_text(target), entry, *half_texts(target)]
    objects, hits = compile_texts([*texts.values(), *support], target, opt, on_progress)
    data = link_library(objects, target, EXPORTS)
    return Library(data, symbols, texts, len(objects) - hits, hits)
