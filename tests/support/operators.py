"""Cases of operators, and the check that a row's rules agree: inference, numpy meaning, lowering, scheduled native code.

A case names shapes with symbols. Its function is lowered once with the symbols left open and run at every size of the case,
and lowered again for each size with the symbols replaced.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from support.native import values_of

from everport.codegen.llvm.build import compile_texts, kernel_symbol
from everport.codegen.llvm.half import half_texts
from everport.codegen.llvm.link import link_library
from everport.codegen.llvm.pool import pool_text
from everport.ir.dtype import DType, f32
from everport.relax.builder import Builder
from everport.relax.evaluate import concrete, evaluate_call
from everport.relax.expr import Call
from everport.relax.op import OPS
from everport.relax.op.base import fields_of_info
from everport.relax.struct_info import TensorInfo
from everport.runtime.model import open_library
from everport.targets import parse_target
from everport.tir import interp
from everport.tir.build import FuncBuilder
from everport.tir.expr import Expr, Var
from everport.tir.func import PrimFunc
from everport.tir.lower import lower
from everport.tir.rules import schedule

Make = Callable[[tuple[int, ...], np.random.Generator], np.ndarray]
Sizes = Mapping[Var, int]

# (relative, absolute) by bits of the element type: a few roundings of sums and of approximated functions.
TOLERANCE = {8: (0.13, 0.02), 16: (2e-2, 2e-3), 32: (2e-5, 2e-5), 64: (1e-11, 1e-11)}


@dataclass(frozen=True)
class Arg:
    """One tensor argument: `make(shape, rng)` gives its array; without it floats are normal and integers small."""

    shape: tuple[Any, ...] = ()
    dtype: DType = f32
    make: Make | None = None

    def array(self, sizes: Sizes, rng: np.random.Generator) -> np.ndarray:
        shape = tuple(concrete(d, sizes) for d in self.shape)
        if self.make is not None:
            made = np.asarray(self.make(shape, rng)).astype(self.dtype.numpy)
            assert made.shape == shape
            return made
        if self.dtype.is_bool:
            return rng.integers(0, 2, shape).astype(np.bool_)
        if self.dtype.is_int:
            low = -5 if self.dtype.kind == "int" else 0
            return rng.integers(low, 6, shape).astype(self.dtype.numpy)
        return rng.standard_normal(shape).astype(self.dtype.numpy)


@dataclass(frozen=True)
class Case:
    """One call of an operator. `sizes` are values of the shape symbols, a run each."""

    op: str
    args: tuple[Arg, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    sizes: tuple[Sizes, ...] = ({},)
    name: str = ""
    tolerance: tuple[float, float] | None = None
    lowest: int = 0  # the least value that symbols are bound to

    def __str__(self) -> str:
        return self.name or f"{self.op} of {', '.join(f'{a.dtype}{list(map(str, a.shape))}' for a in self.args)} {dict(self.attrs)}"


def special(shape: tuple[int, ...], rng: np.random.Generator, t: DType) -> np.ndarray:
    """Values over the whole range of a type, infinities and NaN among them."""
    count = int(np.prod(shape))
    return values_of(t, max(count, 16), int(rng.integers(1 << 30)))[:count].reshape(shape)


def specials(shape: tuple[Any, ...], t: DType) -> Arg:
    """An argument of special values."""
    return Arg(shape, t, lambda s, rng: special(s, rng, t))


def call_of(case: Case, sizes: Sizes | None = None) -> tuple[Call, Builder]:
    """The inferred call, with the symbols left open or replaced by `sizes`."""

    def closed(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(closed(v) for v in value)
        return concrete(value, sizes) if isinstance(value, Expr) and sizes is not None else value

    b = Builder()
    for symbol in case.sizes[0]:
        b.bind_symbol(symbol, case.lowest)
    params = [b.param(f"x{k}", TensorInfo(closed(a.shape), a.dtype)) for k, a in enumerate(case.args)]
    b.emit(case.op, *params, **{k: closed(v) for k, v in case.attrs.items()})
    call = b.bindings[-1].value
    assert isinstance(call, Call)
    return call, b


def lowered(call: Call) -> PrimFunc:
    """The PrimFunc of a call."""
    row = OPS[call.op]
    assert row.lower is not None
    b = FuncBuilder(call.op, kind=str(row.kind))
    buffers = [b.input(f"a{k}", a.info.shape, a.info.dtype) for k, a in enumerate(call.args)]
    made = row.lower(b, buffers, dict(call.attrs), call.info)
    for buffer in made if isinstance(made, (tuple, list)) else (made,):
        b.output(buffer)
    return b.finish()


def run_natively(
    funcs: Sequence[PrimFunc], runs: Sequence[tuple[int, Sequence[np.ndarray], Sizes]], leave_out: Collection[int] = ()
) -> list[list[np.ndarray] | None]:
    """Schedules, compiles and links all functions once; gives the flat outputs of each run (function, inputs, sizes), None
    for functions left out."""
    target = parse_target("cpu")
    device = {k: lower(schedule(f, target)) for k, f in enumerate(funcs) if k not in leave_out}
    named = {k: kernel_symbol(f) for k, f in device.items()}
    texts = dict(named.values())
    objects, _ = compile_texts([*texts.values(), pool_text(target), *half_texts(target)], target, 1)
    library = open_library(link_library(objects, target, list(texts)), "operators")
    results: list[list[np.ndarray] | None] = []
    for number, inputs, sizes in runs:
        if number in leave_out:
            results.append(None)
            continue
        func, kernel = device[number], library[named[number][0]]
        kernel.argtypes, kernel.restype = [ctypes.c_void_p] * 3, None
        made = []
        for buffer in func.buffers[len(func.inputs) :]:
            count = int(np.prod([interp.evaluate(s, dict(sizes)) for s in buffer.shape]))
            raw = np.full(max(count, 1) * buffer.dtype.itemsize, 0x55, np.uint8)
            made.append((raw & 1 if buffer.dtype.is_bool else raw).view(buffer.dtype.numpy)[:count])
        arrays = [np.ascontiguousarray(i) for i in inputs] + made
        pointers = (ctypes.c_void_p * max(1, len(arrays)))(*(a.ctypes.data for a in arrays))
        numbers = (ctypes.c_int64 * max(1, len(func.scalars)))(*(sizes[s] for s in func.scalars))
        kernel(None, ctypes.addressof(pointers), ctypes.addressof(numbers))
        results.append(made[: func.num_outputs])
    return results


def differs(got: np.ndarray, expected: np.ndarray, tolerance: tuple[float, float] | None) -> str:
    """Empty if equal within tolerance, else what differs."""
    if got.dtype != expected.dtype or got.size != expected.size:
        return f"{got.dtype}[{got.size}], expected {expected.dtype}[{expected.size}]"
    got, expected = got.reshape(-1), expected.reshape(-1)
    small = expected.dtype.name.startswith(("int", "uint", "bool"))
    if small:
        bad = np.nonzero(got.astype(object) != expected.astype(object))[0]
    else:
        rtol, atol = tolerance or TOLERANCE[expected.dtype.itemsize * 8]
        a, b = got.astype(np.float64), expected.astype(np.float64)
        with np.errstate(invalid="ignore"):
            bad = np.nonzero(~((np.isnan(a) & np.isnan(b)) | (a == b) | (np.abs(a - b) <= atol + rtol * np.abs(b))))[0]
    return "; ".join(f"element {k} is {got[k]}, expected {expected[k]}" for k in bad[:4]) + (f" ({bad.size} differ)" if bad.size else "")


def check_cases(cases: Sequence[Case], *, native: bool = True, seed: int = 1) -> None:
    """Runs every case at all its sizes three ways and compares; all disagreements are reported together."""
    rng = np.random.default_rng(seed)
    funcs: list[PrimFunc] = []
    runs: list[tuple[int, list[np.ndarray], Sizes]] = []
    wanted: list[tuple[Case, str, tuple[np.ndarray, ...]]] = []
    problems: list[str] = []
    interpreted_only: set[int] = set()  # compiling costs most: natively each case runs symbolic, and static at its first sizes
    for case in cases:
        open_call, _ = call_of(case)
        if case.sizes[0]:
            funcs.append(lowered(open_call))
        shared = len(funcs) - 1
        for sizes in case.sizes:
            arrays = [a.array(sizes, rng) for a in case.args]
            expected = evaluate_call(open_call, arrays, sizes)
            where = f"{case} at {({s.name: v for s, v in sizes.items()})}"
            if sizes:
                runs.append((shared, arrays, sizes))
                wanted.append((case, f"{where}, symbolic", expected))
            static_call, _ = call_of(case, sizes)
            again = [tuple(concrete(d, {}) for d in i.shape) for i in fields_of_info(static_call.info)]
            if again != [e.shape for e in expected]:
                problems.append(f"{where}: static inference gives {again}, symbolic {[e.shape for e in expected]}")
            funcs.append(lowered(static_call))
            runs.append((len(funcs) - 1, arrays, {}))
            if sizes is not case.sizes[0]:
                interpreted_only.add(len(funcs) - 1)
            wanted.append((case, f"{where}, static", expected))
    interpreted = [interp.call(funcs[n], arrays, [sizes[s] for s in funcs[n].scalars]) for n, arrays, sizes in runs]
    everything: list[tuple[str, Sequence[list[np.ndarray] | None]]] = [("interpreted", interpreted)]
    if native:
        everything.append(("native", run_natively(funcs, runs, interpreted_only)))
    for how, results in everything:
        for (case, where, expected), result in zip(wanted, results, strict=True):
            if result is None:
                continue
            for k, (got, value) in enumerate(zip(result, expected, strict=True)):
                found = differs(got, value, case.tolerance)
                if found:
                    problems.append(f"{where}, {how}, output {k}: {found}")
    assert not problems, "\n".join(problems)
