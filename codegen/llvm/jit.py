"""One PrimFunc as a Python function: for tests and for trying kernels out."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from everport.codegen.llvm.build import compile_texts, kernel_symbol
from everport.codegen.llvm.half import half_texts
from everport.codegen.llvm.link import link_library
from everport.codegen.llvm.pool import pool_text
from everport.runtime.model import open_library
from everport.targets import Target, parse_target
from everport.tir.buffer import Buffer
from everport.tir.func import PrimFunc


def compile_and_load(func: PrimFunc, target: Target | None = None, opt: int = 2) -> Callable[..., None]:
    """A callable on arrays and integers in the parameter order of the device function `func`; outputs are written in place."""
    target = target or parse_target("cpu")
    symbol, text = kernel_symbol(func)
    objects, _ = compile_texts([text, pool_text(target), *half_texts(target)], target, opt)
    library = open_library(link_library(objects, target, [symbol]), func.name)
    kernel = library[symbol]
    kernel.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    kernel.restype = None
    buffers = [p for p in func.params if isinstance(p, Buffer)]

    def run(*args: Any) -> None:
        if len(args) != len(func.params):
            raise TypeError(f"{func.name} takes {len(func.params)} arguments, got {len(args)}")
        arrays, ints = args[: len(buffers)], args[len(buffers) :]
        for array, buffer in zip(arrays, buffers, strict=True):
            if array.dtype != buffer.dtype.numpy or not array.flags.c_contiguous:
                raise TypeError(f"{buffer.name} takes a contiguous {buffer.dtype} array, got {array.dtype}")
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        numbers = (ctypes.c_int64 * max(1, len(ints)))(*(int(i) for i in ints))
        kernel(None, ctypes.addressof(pointers), ctypes.addressof(numbers))

    run.library = library  # type: ignore[attr-defined]
    return run


def call(run: Callable[..., None], func: PrimFunc, inputs: list[np.ndarray], ints: list[int], shapes: list[tuple[int, ...]]) -> list[np.ndarray]:
    """Runs with fresh outputs and workspaces of the given shapes; gives the outputs."""
    made = [np.zeros(s, b.dtype.numpy) for s, b in zip(shapes, func.buffers[len(inputs) :], strict=True)]
    run(*inputs, *made, *ints)
    return made[: func.num_outputs]

