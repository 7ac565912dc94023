"""Random PrimFuncs and random schedules for them, small enough to run in the interpreter."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from everport.ir.dtype import DType, f32, i32
from everport.ir.errors import ScheduleError
from everport.tir.buffer import Buffer
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, Expr, Var, const, ge, logical_and, lt, maximum, minimum, select
from everport.tir.func import PrimFunc
from everport.tir.schedule import Schedule


class Program:
    """A random function with its sizes and input arrays."""

    def __init__(self, seed: int, dtype: DType | None = None) -> None:
        self.rng = random.Random(seed)
        self.dtype = dtype or self.rng.choice([f32, f32, i32])
        self.symbols: dict[Var, int] = {}
        b = FuncBuilder(f"random_{seed}")
        n = self.extent("n")
        m = self.extent("m")
        self.values: list[Buffer] = [b.input("a", (n, m), self.dtype), b.input("b", (n, m), self.dtype), b.input("c", (m,), self.dtype)]
        self.builder, self.n, self.m = b, n, m
        for k in range(self.rng.randint(1, 4)):
            self.step(k)
        last = [v for v in self.values if v in b.intermediates]
        for v in {id(v): v for v in (last[-1], self.rng.choice(last))}.values():
            b.output(v)
        self.func = b.finish()
        self.ints = [self.symbols[s] for s in self.func.scalars]

    def extent(self, name: str) -> Expr:
        size = self.rng.choice([0, 1, 2, 3, 5, 8, 13, 17, 20])
        if self.rng.random() < 0.5:
            return Const(max(size, 1))
        symbol = Var(name)
        self.symbols[symbol] = size
        return symbol

    def step(self, k: int) -> None:
        rng, b, n, m = self.rng, self.builder, self.n, self.m
        matrices = [v for v in self.values if v.rank == 2]
        x, y = rng.choice(matrices), rng.choice(matrices)
        one: Any = const(1, self.dtype)
        kind = rng.choice(["ewise", "ewise", "shift", "rows", "columns", "matmul", "broadcast"])
        if kind == "ewise":
            made = b.compute(f"t{k}", (n, m), self.dtype, lambda i, j: maximum(x[i, j] * y[i, j], x[i, j] - one) + y[i, j])
        elif kind == "shift":
            d = rng.choice([-2, -1, 1, 3])
            made = b.compute(
                f"t{k}",
                (n, m),
                self.dtype,
                lambda i, j: select(logical_and(ge(j + d, 0), lt(j + d, m)), x[i, j + d], y[i, j] + one),
            )
        elif kind in ("rows", "columns"):
            how = rng.choice(["sum", "max", "min"])
            if kind == "rows":
                r = b.reduce(f"r{k}", (n,), (m,), self.dtype, how, lambda i, j: x[i, j] + y[i, j])
                made = b.compute(f"t{k}", (n, m), self.dtype, lambda i, j: minimum(x[i, j], one) + r[i])
            else:
                r = b.reduce(f"r{k}", (m,), (n,), self.dtype, how, lambda j, i: x[i, j])
                made = b.compute(f"t{k}", (n, m), self.dtype, lambda i, j: y[i, j] - r[j])
        elif kind == "matmul":
            made = b.reduce(f"t{k}", (n, m), (m,), self.dtype, "sum", lambda i, j, q: x[i, q] * self.values[2][j] + y[i, q])
        else:
            c = self.values[2]
            made = b.compute(f"t{k}", (n, m), self.dtype, lambda i, j: x[i, j] + c[j])
        self.values.append(made)

    def inputs(self) -> list[np.ndarray]:
        rng = np.random.default_rng(self.rng.randint(0, 1 << 30))
        shapes = [tuple(self.symbols[s] if isinstance(s, Var) else int(s.value) for s in v.shape) for v in self.values[:3]]
        return [rng.integers(-4, 5, s).astype(self.dtype.numpy) for s in shapes]

    def scheduled(self, steps: int = 8) -> PrimFunc:
        """The function after random primitives; those that refuse are skipped."""
        s, rng = Schedule(self.func), self.rng
        for _ in range(steps):
            block = rng.choice(s.blocks()).name
            loops = s.get_loops(block)
            try:
                match rng.choice(["split", "split", "fuse", "reorder", "parallel", "vectorize", "unroll", "at", "rat", "write", "rfactor", "decompose"]):
                    case "split" if loops:
                        s.split(rng.choice(loops), (None, rng.choice([2, 3, 4, 8])))
                    case "fuse" if len(loops) > 1:
                        k = rng.randrange(len(loops) - 1)
                        s.fuse(loops[k], loops[k + 1])
                    case "reorder" if len(loops) > 1:
                        s.reorder(*rng.sample(loops, 2))
                    case "parallel" if loops:
                        s.parallel(loops[0])
                    case "vectorize" if loops:
                        s.vectorize(loops[-1])
                    case "unroll" if loops:
                        s.unroll(rng.choice(loops))
                    case "at" if loops:
                        producers = s.get_producers(block)
                        if producers:
                            s.compute_at(rng.choice(producers), rng.choice(loops))
                    case "rat":
                        consumers = s.get_consumers(block)
                        if consumers and loops:
                            s.reverse_compute_at(rng.choice(consumers), rng.choice(loops))
                    case "write":
                        s.cache_write(block, "local")
                    case "rfactor" if loops:
                        s.rfactor(block, rng.choice(loops))
                    case "decompose" if loops:
                        s.decompose_reduction(block, rng.choice(loops))
            except ScheduleError:
                continue
        return s.func
