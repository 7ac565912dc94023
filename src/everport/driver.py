"""The compiler as a whole: from a model to a package, stage by stage."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from everport.codegen.llvm.build import Library, build_library
from everport.codegen.program import build_program, count_flops
from everport.frontend.onnx import import_onnx
from everport.ir.errors import CompileError
from everport.ir.knobs import DEBUG, DUMP
from everport.ir.module import IRModule
from everport.ir.passes import PassRecord, PassRunner
from everport.relax.interp import evaluate
from everport.relax.passes import graph_pipeline
from everport.relax.passes.plan_memory import PlanMemory
from everport.relax.print import script
from everport.relax.verify import verify_module
from everport.runtime import RunError, load
from everport.runtime.main import random_inputs
from everport.runtime.package import write_package
from everport.runtime.program import Program, bind_dims, text_of
from everport.runtime.program import evaluate as evaluate_int
from everport.targets import Target, host_level, parse_target
from everport.targets.cpu import cpu_flags
from everport.tir.func import PrimFunc
from everport.tir.lower import lower
from everport.tir.rules import schedule

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Compilation:
    """The stages of one compilation, each made on demand from the one before."""

    source: Any
    target: Target
    dims: Mapping[str, Any] = field(default_factory=dict)
    opt: int = 2
    progress: Progress | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    records: list[PassRecord] = field(default_factory=list)
    _stages: dict[str, Any] = field(default_factory=dict)

    def _stage(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._stages:
            if self.progress is not None:
                self.progress(name, 0, 0)
            start = time.perf_counter()
            self._stages[name] = make()
            self.seconds[name] = time.perf_counter() - start
        return self._stages[name]

    def imported(self) -> IRModule:
        """Relax as imported."""
        return self._stage("import", lambda: import_onnx(self.source, self.dims))

    def graph(self) -> IRModule:
        """Relax calling PrimFuncs, fused."""
        module = self.imported()

        def make() -> IRModule:
            level, folder = DEBUG.integer(), DUMP.text()
            runner = PassRunner(
                verify=verify_module if level >= 2 else None,
                render=script if folder or level >= 3 else None,
                dump_dir=Path(folder) if folder else None,
                on_diff=(lambda name, diff: print(diff, file=sys.stderr)) if level >= 3 else None,
            )
            result = runner.run(module, graph_pipeline(self.opt))
            self.records = runner.records
            return result

        return self._stage("graph", make)

    def scheduled(self) -> IRModule:
        """PrimFuncs scheduled for the target."""
        module = self.graph()

        def one(func: PrimFunc) -> PrimFunc:
            func = func.with_attr(flops=count_flops(func))
            return schedule(func, self.target) if self.opt >= 1 else func

        return self._stage(
            "schedule", lambda: module.with_functions({n: one(f) for n, f in module.of_type(PrimFunc).items()})
        )

    def lowered(self) -> IRModule:
        """PrimFuncs as device TIR, and memory planned."""
        module = self.scheduled()
        return self._stage(
            "lower",
            lambda: PlanMemory()(module.with_functions({n: lower(f) for n, f in module.of_type(PrimFunc).items()})),
        )

    def program(self) -> tuple[Program, list[np.ndarray]]:
        """The host program and the weights."""
        module = self.lowered()
        return self._stage("program", lambda: build_program(module))

    def library(self) -> Library:
        """Native code."""
        module, (program, _) = self.lowered(), self.program()
        report = None
        if self.progress is not None:
            report = lambda done, total: self.progress("codegen", done, total)  # type: ignore[misc]  # noqa: E731
        return self._stage(
            "codegen", lambda: build_library(module.of_type(PrimFunc), program, self.target, self.opt, report)
        )


def compile_model(
    source: Any,
    target: str = "cpu",
    dims: Mapping[str, Any] | None = None,
    output: str | os.PathLike | None = None,
    opt: int = 2,
    progress: Progress | None = None,
) -> tuple[Path, Compilation]:
    """Compiles a model file or proto into a package; gives its path and the compilation with its timings."""
    if output is None:
        if not isinstance(source, (str, os.PathLike)):
            raise CompileError("a model in memory needs an output path", hint="pass output='model.everport'")
        output = Path(source).with_suffix(".everport").name
    path = Path(output)
    if not path.parent.exists():
        raise CompileError(f"the folder {str(path.parent)!r} does not exist", hint="make it, or name another output")
    job = Compilation(source, parse_target(target), dict(dims or {}), opt, progress)
    job.library()
    job._stage("package", lambda: write(job, path))
    return path, job


SELF_TEST_BYTES = 4 << 20
INTERPRETED_FLOPS = 3e8
CANDIDATE_SIZES = (1, 8, 32, 64, 224)


def write(job: Compilation, path: Path) -> None:
    """Writes the package of a finished compilation, with test vectors: random inputs and the interpreter's outputs, or (for
    a model too large to interpret) the compiled code's own."""
    (program, weights), library = job.program(), job.library()
    function = job.graph()["main"]
    ranges = {s.name: [lo, hi, divisor] for s, lo, hi, divisor in function.attr("dim_ranges", ())}
    manifest: dict[str, Any] = {
        "name": Path(job.source).stem if isinstance(job.source, (str, os.PathLike)) else "model",
        "producer": "everport 0.1.0",
        "target": {
            "name": job.target.name,
            "architecture": job.target.level.triple.partition("-")[0],
            "features": list(job.target.features),
        },
        "precision": "default",
        "inputs": [{"name": s.name, "dtype": s.dtype, "shape": [text_of(d) for d in s.shape]} for s in program.inputs],
        "outputs": [{"name": s.name, "dtype": s.dtype, "shape": [text_of(d) for d in s.shape]} for s in program.outputs],
        "dims": ranges,
        "peak_memory": text_of(("+", program.arena, sum(w.bytes for w in program.weights))),
        "kernels": {name: library.symbols[name] for name in program.kernels},
        "self_test": {"outputs": "none"},
        "example_dims": {},
    }
    write_package(path, manifest, program, library.data, weights, {})
    if job.target.level.triple != host_level().triple or not set(job.target.features) <= cpu_flags():
        manifest["self_test"] = {"outputs": "none", "why": "compiled for another machine"}
        write_package(path, manifest, program, library.data, weights, {})
        return
    vectors, manifest["self_test"], manifest["example_dims"] = _self_test(job, path, program)
    write_package(path, manifest, program, library.data, weights, vectors)


def _self_test(job: Compilation, path: Path, program: Program) -> tuple[dict[str, np.ndarray], dict[str, str], dict[str, int]]:
    """Test vectors, where their outputs come from, and the sizes of dynamic dimensions that they use."""
    with load(path, threads=1) as model:
        ranges = model.manifest["dims"]
        tried = ""
        for candidate in CANDIDATE_SIZES:
            sizes = {name: _size(candidate, *bounds) for name, bounds in ranges.items()}
            arrays = random_inputs(model, 0, sizes)
            try:
                made = model.run(arrays)
            except RunError as error:
                tried = str(error)
                if not ranges:
                    break
                continue
            total = sum(a.nbytes for a in (*arrays.values(), *made.values()))
            if total > SELF_TEST_BYTES:
                return {}, {"outputs": "none", "why": f"the vectors would take {total} bytes"}, sizes
            registers = bind_dims(program, [a.shape for a in arrays.values()])
            source = "compiled"
            if sum(evaluate_int(i.flops, registers) for i in program.launches) < INTERPRETED_FLOPS:
                source, made = "interpreter", evaluate(job.imported()["main"], arrays)
            vectors = {f"input:{n}": a for n, a in arrays.items()} | {f"output:{n}": a for n, a in made.items()}
            return vectors, {"outputs": source}, sizes
    return {}, {"outputs": "none", "why": f"no sizes were found that the model accepts: {tried}"}, {}


def _size(candidate: int, lo: int, hi: int | None, divisor: int) -> int:
    """The size nearest to a candidate that a dimension admits."""
    value = max(candidate, lo)
    value = -(-value // divisor) * divisor
    return value if hi is None or value <= hi else hi // divisor * divisor
