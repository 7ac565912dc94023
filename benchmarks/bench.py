"""`make bench`: compile times, speed against ONNX Runtime, import time, runtime size.

Runs of the two engines are interleaved and compared as ratios of medians. `--models a,b` picks models, `--threads N`, `--json FILE`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "models"))

from zoo import INPUTS, inputs_of, model_path

import everport


def compile_seconds(name: str, folder: Path, cache: Path) -> tuple[float, float, Path]:
    """Wall seconds of `everport compile` as a process, with a cold and a warm kernel cache."""
    package = folder / f"{name}.everport"
    environment = {**os.environ, "EVERPORT_CACHE": str(cache)}
    command = [sys.executable, "-m", "everport.cli.main", "compile", str(model_path(name)), "-o", str(package), "--json"]
    times = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True, env=environment)
        times.append(time.perf_counter() - start)
    return times[0], times[1], package


def medians(a: Any, b: Any, seconds: float) -> tuple[float, float]:
    """Medians of two callables run in turn."""
    a(), b()
    times: tuple[list[float], list[float]] = ([], [])
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times[0]) < 3:
        for function, kept in ((a, times[0]), (b, times[1])):
            start = time.perf_counter()
            function()
            kept.append(time.perf_counter() - start)
    return float(np.median(times[0])), float(np.median(times[1]))


def import_milliseconds() -> float:
    """What importing everport.runtime costs over numpy's own import: the least of several processes."""

    def best(code: str) -> float:
        found = []
        for _ in range(7):
            start = time.perf_counter()
            subprocess.run([sys.executable, "-c", code], check=True)
            found.append(time.perf_counter() - start)
        return min(found)

    return (best("import everport.runtime") - best("import numpy")) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(INPUTS))
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--seconds", type=float, default=3.0, help="time for each comparison")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    rows = []
    print(f"{'model':20} {'cold s':>7} {'warm s':>7} {'ms':>9} {'ORT ms':>9} {'ratio':>6}")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            cold, warm, package = compile_seconds(name, Path(folder), Path(folder) / f"cache-{name}")
            settings = onnxruntime.SessionOptions()
            settings.log_severity_level = 4
            model = everport.load(package, threads=options.threads)
            settings.intra_op_num_threads = model.threads
            session = onnxruntime.InferenceSession(str(model_path(name)), settings, providers=["CPUExecutionProvider"])
            arrays = inputs_of(name)
            ours, theirs = medians(lambda m=model, a=arrays: m.run(a), lambda s=session, a=arrays: s.run(None, a), options.seconds)
            model.close()
            rows.append({"model": name, "cold_s": cold, "warm_s": warm, "ms": ours * 1e3, "ort_ms": theirs * 1e3, "ratio": ours / theirs})
            print(f"{name:20} {cold:7.1f} {warm:7.1f} {ours * 1e3:9.2f} {theirs * 1e3:9.2f} {ours / theirs:6.2f}", flush=True)
            package.unlink()
    size = sum(p.stat().st_size for p in (ROOT / "runtime").glob("*.py"))
    extra = import_milliseconds()
    ratios = [r["ratio"] for r in rows]
    print(f"time over ONNX Runtime's: geometric mean {np.exp(np.mean(np.log(ratios))):.2f}, largest {max(ratios):.2f}")
    print(f"import of everport.runtime over numpy's: {extra:.1f} ms; runtime in a package: {size / 1e3:.1f} KB")
    if options.json:
        summary = {"models": rows, "import_ms": extra, "runtime_bytes": size}
        Path(options.json).write_text(json.dumps(summary, indent=1) + "\n")


if __name__ == "__main__":
    main()
