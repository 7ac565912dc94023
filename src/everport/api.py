"""compile and check: the compiler's two functions for Python users."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from everport.driver import Compilation, compile_model
from everport.frontend.onnx.model import read_model
from everport.ir.errors import CompileError
from everport.relax.interp import evaluate
from everport.runtime import load
from everport.runtime.main import random_inputs


def compile(
    model: str | os.PathLike | onnx.ModelProto,
    target: str = "cpu",
    dims: Mapping[str, Any] | None = None,
    output: str | os.PathLike | None = None,
    opt: int = 2,
) -> Path:
    """Compiles an ONNX model into a package and gives the package's path.

    `dims` fixes or bounds dynamic dimensions: {"batch": 1, "seq": (1, 512), "width": "%32==0"}. Raises CompileError, or
    UnsupportedError that lists all that is missing.
    """
    return compile_model(model, target, dims, output, opt)[0]


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far one output is off: the largest absolute error, the largest value, and whether all is within tolerance."""

    name: str
    error: float
    largest: float
    within: bool


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What check found: against what, every output, and the first layer that differs (None if all agree)."""

    reference: str
    outputs: tuple[OutputError, ...]
    first_difference: str | None

    @property
    def ok(self) -> bool:
        return all(o.within for o in self.outputs)


def check(
    model: str | os.PathLike | onnx.ModelProto,
    target: str = "cpu",
    dims: Mapping[str, Any] | None = None,
    inputs: Mapping[str, np.ndarray] | None = None,
    rtol: float = 1e-3,
    atol: float = 1e-4,
    seed: int = 0,
    opt: int = 2,
) -> CheckResult:
    """Compiles the model, runs it on `inputs` (default: random ones) and compares with ONNX Runtime where it is installed,
    else with the interpreter. Where an output is off, the first layer that differs from the interpreter is named."""
    with tempfile.TemporaryDirectory(prefix="everport-check-") as folder:
        path, job = compile_model(model, target, dims, Path(folder) / "model.everport", opt)
        with load(path) as compiled:
            arrays = dict(inputs) if inputs is not None else random_inputs(compiled, seed)
            made = compiled.run(arrays)
    reference, expected = _reference(model, job, arrays)
    outputs = tuple(_compare(name, made[name], expected[name], rtol, atol) for name in made)
    first = None if all(o.within for o in outputs) else first_difference(job, arrays, rtol, atol)
    return CheckResult(reference, outputs, first)


def _reference(model: Any, job: Compilation, arrays: Mapping[str, np.ndarray]) -> tuple[str, dict[str, np.ndarray]]:
    try:
        import onnxruntime
    except ImportError:
        return "interpreter", evaluate(job.imported()["main"], arrays)
    proto, folder, _ = read_model(model)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    source = str(model) if folder is not None else proto.SerializeToString()
    try:
        session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return f"ONNX Runtime {onnxruntime.__version__}", dict(zip(names, session.run(names, dict(arrays)), strict=True))
    except Exception as error:  # onnxruntime raises types of its own that have no common base
        raise CompileError(f"ONNX Runtime cannot run the model: {str(error).splitlines()[0]}") from error


def _compare(name: str, got: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> OutputError:
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return OutputError(name, float("inf"), 0.0, False)
    a, b = got.astype(np.float64), expected.astype(np.float64)
    error = float(np.nanmax(np.abs(a - b), initial=0.0))
    largest = float(np.nanmax(np.abs(b), initial=0.0))
    return OutputError(name, error, largest, bool(np.allclose(a, b, rtol, atol, equal_nan=True)))


def first_difference(job: Compilation, arrays: Mapping[str, np.ndarray], rtol: float, atol: float) -> str | None:
    """The first value of the graph that the compiled kernels and the interpreter disagree on."""
    from everport.codegen.llvm.layers import run_layers

    values: dict[str, np.ndarray] = {}
    evaluate(job.imported()["main"], arrays, on_value=lambda var, array: values.setdefault(var.name, array))
    for binding, array in run_layers(job.lowered(), job.target, arrays):
        expected = values.get(binding.var.name)
        if expected is not None and expected.shape == array.shape and not _compare("", array, expected, rtol, atol).within:
            return f"{binding.span or binding.var.name}"
    return None
