"""`python model.everport`: runs the package by itself."""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path

import numpy as np

from . import program as programs
from .errors import RunError
from .model import Model, load


def random_inputs(model: Model, seed: int, dims: dict[str, int] | None = None) -> dict[str, np.ndarray]:
    """Inputs of the declared types: standard normal floats, integers 0 to 99, bools; symbolic dimensions take
    what `dims` says, the sizes of the package's test vectors, or the least of their range."""
    source = np.random.default_rng(seed)
    sizes = {name: value[0] for name, value in model.manifest.get("dims", {}).items()}
    sizes.update(model.manifest.get("example_dims", {}))
    sizes.update(dims or {})
    arrays = {}
    for spec, info in zip(model.program.inputs, model.inputs, strict=True):
        registers = {r: sizes.get(r, 1) for d in spec.shape for r in programs.registers_of(d)}
        shape = [programs.evaluate(d, registers) for d in spec.shape]
        kind = info.numpy_dtype
        if info.dtype == "bool":
            arrays[info.name] = source.random(shape) < 0.5
        elif info.dtype[0] in "iu":
            arrays[info.name] = source.integers(0, min(100, 1 << (int(info.dtype[1:]) - 1)), shape).astype(kind)
        elif info.dtype == "f8e8m0":  # positive
            arrays[info.name] = np.abs(source.standard_normal(shape)).astype(np.float32).astype(kind)
        else:
            arrays[info.name] = source.standard_normal(shape).astype(np.float32).astype(kind)
    return arrays


def parse_inputs(model: Model, options: list[str]) -> dict[str, np.ndarray]:
    """Reads NAME=FILE.npy options; a bare FILE.npy is the only input, or the next one."""
    arrays: dict[str, np.ndarray] = {}
    names = [i.name for i in model.inputs]
    for option in options:
        name, separator, path = option.partition("=")
        if not separator or (name not in names and Path(option).exists()):
            left = [n for n in names if n not in arrays]
            if not left:
                raise RunError(f"more inputs than the model takes: {option!r}", "input")
            name, path = left[0], option
        try:
            arrays[name] = np.load(path, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise RunError(f"input {name!r}: {path!r} cannot be read as .npy: {error}", "input") from None
    return arrays


def main() -> None:
    """Entry of a package that is run as a script."""
    path = Path(sys.argv[0])
    parser = argparse.ArgumentParser(prog=f"python {path.name}", description="Runs this model.")
    parser.add_argument("--input", action="append", default=[], metavar="[NAME=]FILE.npy", help="an input array")
    parser.add_argument("--output", metavar="FILE.npz", help="write the outputs there")
    parser.add_argument("--random", action="store_true", help="run on random inputs")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--info", action="store_true", help="show inputs, outputs and memory, and stop")
    parser.add_argument("--self-test", action="store_true", help="run the built-in test vectors, and stop")
    options = parser.parse_args()
    try:
        model = load(path, threads=options.threads)
        if options.info or not (options.input or options.random or options.self_test):
            print(f"model   {model.manifest.get('name', '')}")
            print(f"target  {model.manifest.get('target', {}).get('name', '')}")
            for title, infos in (("input", model.inputs), ("output", model.outputs)):
                for info in infos:
                    print(f"{title:7} {info!r}")
            print(f"memory  weights {model.memory['weights']} bytes, arena {model.memory['arena']} bytes")
            if not options.info:
                print("\nrun it with --input NAME=FILE.npy or --random; see --help")
            return
        if options.self_test:
            print(f"self test passed, largest error {model.self_test():.3g}")
            return
        arrays = random_inputs(model, options.seed) if options.random else {}
        arrays.update(parse_inputs(model, options.input))
        start = time.perf_counter()
        outputs = model.run(arrays)
        seconds = time.perf_counter() - start
        for name, array in outputs.items():
            shown = np.array2string(array.reshape(-1)[:6], precision=5, separator=", ")
            print(f"{name}: {array.dtype}{list(array.shape)} {shown[:-1]}{', ...' if array.size > 6 else ''}]")
        print(f"took {seconds * 1e3:.2f} ms")
        if options.output:
            np.savez(options.output, **outputs)  # type: ignore[arg-type]
    except RunError as error:
        if os.environ.get("EVERPORT_DEBUG", "0") not in ("", "0"):
            raise
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(1) from None
