"""Single kernels under the default schedule: `python benchmarks/kernels.py [--filter TEXT]`.

Prints for each the time to compile, the time to run on the calling thread, GFLOP/s, GB/s, and the share of the multiply-add
peak that this machine reaches now (measured first: it moves with load and clock).
"""

from __future__ import annotations

import argparse
import ctypes
import time
from collections.abc import Callable

import numpy as np

from everport.codegen.llvm.jit import compile_and_load
from everport.codegen.llvm.link import link_library
from everport.codegen.llvm.object import compile_object
from everport.ir.dtype import f32
from everport.runtime.model import open_library
from everport.targets import Target, parse_target
from everport.tir import interp
from everport.tir.build import FuncBuilder
from everport.tir.expr import Var, const, ge, logical_and, lt, maximum, select
from everport.tir.func import PrimFunc
from everport.tir.intrin import call
from everport.tir.lower import lower
from everport.tir.rules import schedule

ACCUMULATORS = 12


def best(run: Callable[[], None], seconds: float = 0.3) -> float:
    """The shortest time of a call."""
    shortest, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        run()
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def peak(target: Target) -> float:
    """f32 multiply-adds of one core in flops a second: independent chains that stay in registers."""
    lanes = target.lanes(4)
    vector = f"<{lanes} x float>"
    phis = [f"  %a{k} = phi {vector} [ zeroinitializer, %entry ], [ %b{k}, %loop ]" for k in range(ACCUMULATORS)]
    steps = [
        f"  %b{k} = call {vector} @llvm.fma.v{lanes}f32({vector} %a{k}, {vector} %x, {vector} %x)" for k in range(ACCUMULATORS)
    ]
    stores = [
        f"  %p{k} = getelementptr {vector}, ptr %out, i64 {k}\n  store {vector} %b{k}, ptr %p{k}, align 4" for k in range(ACCUMULATORS)
    ]
    text = "\n".join(
        [
            f"declare {vector} @llvm.fma.v{lanes}f32({vector}, {vector}, {vector})",
            "define void @peak(ptr %out, i64 %n) {",
            "entry:",
            f"  %x = load {vector}, ptr %out, align 4",
            "  br label %loop",
            "loop:",
            "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]",
            *phis,
            *steps,
            "  %j = add i64 %i, 1",
            "  %more = icmp slt i64 %j, %n",
            "  br i1 %more, label %loop, label %done",
            "done:",
            *stores,
            "  ret void",
            "}",
        ]
    )
    library = open_library(link_library([compile_object(text, target)], target, ["peak"]), "peak")
    out = np.zeros(ACCUMULATORS * lanes, np.float32)
    count = 200_000
    seconds = best(lambda: library.peak(ctypes.c_void_p(out.ctypes.data), ctypes.c_int64(count)))
    return 2 * ACCUMULATORS * lanes * count / seconds


def gemm(m, n, k) -> PrimFunc:
    b = FuncBuilder("gemm")
    x, w, c = b.input("x", (m, k), f32), b.input("w", (k, n), f32), b.input("c", (n,), f32)
    y = b.reduce("y", (m, n), (k,), f32, "sum", lambda i, j, q: x[i, q] * w[q, j])
    b.output(b.compute("z", (m, n), f32, lambda i, j: maximum(y[i, j] + c[j], const(0.0, f32))))
    return b.finish()


def conv(channels, size, kernel) -> PrimFunc:
    b = FuncBuilder("conv")
    x = b.input("x", (1, channels, size, size), f32)
    w = b.input("w", (channels, channels, kernel, kernel), f32)
    p = kernel // 2
    if p:
        inside = lambda h, v: logical_and(ge(h, p), lt(h, size + p), ge(v, p), lt(v, size + p))  # noqa: E731
        x0 = x
        x = b.compute(
            "pad",
            (1, channels, size + 2 * p, size + 2 * p),
            f32,
            lambda n, c, h, v: select(inside(h, v), x0[n, c, h - p, v - p], const(0.0, f32)),
        )
    y = b.reduce(
        "y",
        (1, channels, size, size),
        (channels, kernel, kernel),
        f32,
        "sum",
        lambda n, o, h, v, c, r, s: x[n, c, h + r, v + s] * w[o, c, r, s],
    )
    b.output(b.compute("z", (1, channels, size, size), f32, lambda n, o, h, v: maximum(y[n, o, h, v], const(0.0, f32))))
    return b.finish()


def softmax(n, m) -> PrimFunc:
    b = FuncBuilder("softmax")
    x = b.input("x", (n, m), f32)
    top = b.reduce("top", (n,), (m,), f32, "max", lambda i, k: x[i, k])
    e = b.compute("e", (n, m), f32, lambda i, k: call("exp", x[i, k] - top[i]))
    total = b.reduce("total", (n,), (m,), f32, "sum", lambda i, k: e[i, k])
    b.output(b.compute("y", (n, m), f32, lambda i, j: e[i, j] / total[i]))
    return b.finish()


def row_sums(n, m) -> PrimFunc:
    b = FuncBuilder("row_sums")
    x = b.input("x", (n, m), f32)
    b.output(b.reduce("y", (n,), (m,), f32, "sum", lambda i, k: x[i, k]))
    return b.finish()


def tanh(n) -> PrimFunc:
    b = FuncBuilder("tanh")
    x = b.input("x", (n,), f32)
    b.output(b.compute("y", (n,), f32, lambda i: call("tanh", x[i])))
    return b.finish()


ROWS = Var("rows")
# name, function, values of its scalars, flops
CASES: list[tuple[str, PrimFunc, list[int], float]] = [
    ("gemm 128x768x768", gemm(128, 768, 768), [], 2 * 128 * 768 * 768),
    ("gemm nx768x768, n = 128", gemm(ROWS, 768, 768), [128], 2 * 128 * 768 * 768),
    ("gemm 512x512x512", gemm(512, 512, 512), [], 2 * 512**3),
    ("gemm 1x768x768", gemm(1, 768, 768), [], 2 * 768 * 768),
    ("conv 3x3, 64 at 56x56", conv(64, 56, 3), [], 2 * 9 * 64 * 64 * 56 * 56),
    ("conv 1x1, 256 at 14x14", conv(256, 14, 1), [], 2 * 256 * 256 * 14 * 14),
    ("softmax 1536x128", softmax(1536, 128), [], 0),
    ("softmax nx128, n = 1536", softmax(ROWS, 128), [1536], 0),
    ("row sums 1024x1024", row_sums(1024, 1024), [], 1024 * 1024),
    ("tanh 1048576", tanh(1 << 20), [], 0),
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--filter", default="", help="only kernels whose name contains this")
    parser.add_argument("--target", default="cpu")
    options = parser.parse_args()
    target = parse_target(options.target)
    top = peak(target)
    print(f"peak of one core: {top / 1e9:.1f} GFLOP/s ({target.name})")
    for name, func, ints, flops in CASES:
        if options.filter not in name:
            continue
        start = time.perf_counter()
        device = lower(schedule(func, target))
        middle = time.perf_counter()
        run = compile_and_load(device, target)
        compiled = time.perf_counter()
        values = dict(zip(device.scalars, ints, strict=True))
        shapes = [tuple(interp.evaluate(s, values) for s in b.shape) for b in device.buffers]
        arrays = [np.random.default_rng(0).random(s, np.float32) for s in shapes]
        seconds = best(lambda arrays=arrays, run=run, ints=ints: run(*arrays, *ints))
        moved = sum(a.nbytes for a in arrays[: len(arrays) - device.num_workspaces])
        rate = f"{flops / seconds / 1e9:7.1f} GFLOP/s {100 * flops / seconds / top:4.0f}%" if flops else " " * 21
        print(
            f"{name:26} {1e6 * seconds:10.1f} us {rate} {moved / seconds / 1e9:6.1f} GB/s"
            f"   lower {1e3 * (middle - start):4.0f} ms, compile {1e3 * (compiled - middle):4.0f} ms",
            flush=True,
        )


if __name__ == "__main__":
    main()
