"""Runs ONNX's own node tests on compiled packages: `python tests/ops/node_suite.py [--filter TEXT] [--update]`.

Each test ends as "pass", "refused: REASON" (an UnsupportedError at compile time), "wrong: ..." or "crash: ...".
A test that is refused because a shape, axis or the like is computed at run time runs once more with all inputs but the
first as constants, as real models have them; its end is then "refused: REASON | with constants: END".
tests/ops/expectations.txt holds the expected end of every test; "wrong" and "crash" have no place in it.
"""

from __future__ import annotations

import argparse
import functools
import re
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import everport
from everport.driver import compile_model
from everport.ir.errors import UnsupportedError

EXPECTATIONS = Path(__file__).with_name("expectations.txt")

# Of align_corners with a fractional scale: the standard's formula and ONNX Runtime divide by the whole output length, the test
# data by the fractional one.
DISPUTED = ("test_resize_downsample_scales_cubic_align_corners", "test_resize_downsample_scales_linear_align_corners")


@functools.cache
def cases() -> dict[str, Any]:
    """Every node test of the installed onnx by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        return {t.name: t for t in load_model_tests(kind="node")}


def _array(value: Any) -> np.ndarray | None:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None


def _data(case: Any) -> list[tuple[list[Any], list[Any]]]:
    """Input and output arrays of every data set; None where a value is no tensor."""
    if case.data_sets is not None:
        return [([_array(i) for i in ins], [_array(o) for o in outs]) for ins, outs in case.data_sets]
    raise ValueError(f"{case.name} has no data in memory")


def run_case(case: Any) -> str:
    """How one test ends."""
    data = _data(case)
    end = _run(case.model, data, case)
    of_data = end.startswith("refused") and any(w in end for w in ("run time", "compile-time"))
    if not of_data or len(data) != 1 or any(v is None for v in (*data[0][0], *data[0][1])):
        return end
    if case.name in DISPUTED:
        return f"{end} | with constants: disputed"
    model, inputs = _with_constants(case.model, data[0][0], "refused: ConstantOfShape" in end)
    again = _run(model, [(inputs, data[0][1])], case)
    return again if again.startswith(("wrong", "crash")) else f"{end} | with constants: {again}"


def _with_constants(model: onnx.ModelProto, arrays: list[Any], first_too: bool) -> tuple[onnx.ModelProto, list[Any]]:
    """The model with inputs as initializers, but for a first one that is no scalar; and what is left to feed."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    inputs = list(copy.graph.input)
    kept = 1 if arrays and arrays[0].ndim and not first_too else 0
    for info, array in zip(inputs[kept:], arrays[kept:], strict=True):
        copy.graph.initializer.append(numpy_helper.from_array(array, info.name))
    del copy.graph.input[kept:]
    return copy, arrays[:kept]


def _run(proto: onnx.ModelProto, data: list[tuple[list[Any], list[Any]]], case: Any) -> str:
    try:
        with tempfile.TemporaryDirectory() as folder:
            path, _ = compile_model(proto, output=Path(folder) / "m.everport", opt=1)
            model = everport.load(path, threads=1)
            for inputs, outputs in data:
                if any(v is None for v in (*inputs, *outputs)):
                    return "crash: compiled, though a value is no tensor"
                made = model(*(np.asarray(i) for i in inputs))
                made = made if isinstance(made, tuple) else (made,)
                for got, expected, info in zip(made, outputs, model.outputs, strict=True):
                    verdict = compare(got, expected, case.rtol, case.atol)
                    if verdict:
                        return f"wrong: {info.name}: {verdict}"
        return "pass"
    except UnsupportedError as error:
        return f"refused: {reason(error)}"
    except Exception as error:  # the harness reports what a compiler must not raise
        return f"crash: {type(error).__name__}: {' '.join(str(error).split())[:200]}"


def reason(error: UnsupportedError) -> str:
    """The first note without counts and node names, or the message."""
    text = error.notes[0] if error.notes else error.message
    return re.sub(r" x \d+: ", ": ", re.sub(r" \([^()]*'[^()]*\)$", "", text))[:160]


def compare(got: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """Empty if equal within tolerance, else what differs."""
    if got.dtype != expected.dtype:
        return f"type {got.dtype}, expected {expected.dtype}"
    if got.shape != expected.shape:
        return f"shape {list(got.shape)}, expected {list(expected.shape)}"
    if expected.dtype.kind in "biu" or expected.dtype.name.startswith(("int", "uint")):
        a, b = got.astype(np.int64), expected.astype(np.int64)
        return "" if np.array_equal(a, b) else f"{int((a != b).sum())} of {a.size} integers differ"
    ulps = {"float16": 2**-9, "bfloat16": 2**-6}  # two units in the last place; for bfloat16 ONNX's own runner allows as much
    rtol = max(rtol, ulps.get(expected.dtype.name, 0))
    a, b = got.astype(np.float64), expected.astype(np.float64)
    if expected.dtype == np.float32:
        # Some expected zeros are sums that cancel (inverse DFT), in f32 known to one unit of the largest element.
        atol = max(atol, float(np.finfo(np.float32).eps) * float(np.abs(b, where=np.isfinite(b), out=np.zeros_like(b)).max(initial=0.0)))
    if np.allclose(a, b, rtol, atol, equal_nan=True):
        return ""
    return f"largest error {np.nanmax(np.abs(a - b)):.3g}"


def expectations() -> dict[str, str]:
    """The expected end of every test by name."""
    lines = EXPECTATIONS.read_text().splitlines()
    return dict(line.split("\t", 1) for line in lines if line and not line.startswith("#"))


def expected_version() -> str:
    """The release of onnx whose tests the expectation file lists."""
    return EXPECTATIONS.read_text().splitlines()[0].removeprefix("# onnx ")


def run_named(names: list[str]) -> dict[str, str]:
    """How the tests of these names end."""
    return {name: run_case(cases()[name]) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="only tests whose name contains this")
    parser.add_argument("--update", action="store_true", help="write the expectation file (refuses wrong and crash)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--quiet", action="store_true")
    options = parser.parse_args()
    names = sorted(n for n in cases() if options.filter in n)
    ends: dict[str, str] = {}
    chunks = [names[k : k + 20] for k in range(0, len(names), 20)]
    with ProcessPoolExecutor(options.jobs) as pool:
        for part in map(run_named, chunks) if options.jobs == 1 else pool.map(run_named, chunks):
            ends |= part
            for name, end in part.items():
                if not options.quiet and end != "pass":
                    print(f"{name}\t{end}", flush=True)
    kinds = [end.partition(":")[0] for end in ends.values()]
    print({k: kinds.count(k) for k in sorted(set(kinds))}, "with constants:", sum(e.endswith("constants: pass") for e in ends.values()))
    if options.update:
        if set(kinds) - {"pass", "refused"}:
            raise SystemExit("not written: wrong or crashing tests")
        if options.filter:  # the other tests keep their lines
            ends = dict(line.split("\t") for line in EXPECTATIONS.read_text().splitlines()[1:]) | ends
        lines = [f"# onnx {onnx.__version__}", *(f"{n}\t{e}" for n, e in sorted(ends.items()))]
        EXPECTATIONS.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
