"""From planned Relax to the host program: symbols, checks, launches, buffers, weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from everport.ir.errors import CompileError
from everport.ir.module import IRModule
from everport.ir.node import pre_order, structural_hash
from everport.relax.expr import (
    Binding,
    Call,
    CallTIR,
    Constant,
    Function,
    MatchCast,
    RelaxExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from everport.relax.op.base import fields_of_info
from everport.relax.passes.plan_memory import function_analyzer, nbytes, storage_roots
from everport.relax.struct_info import TensorInfo
from everport.runtime.program import (
    BufferSlot,
    Check,
    Copy,
    Dim,
    Instruction,
    IntExpr,
    Launch,
    Program,
    TensorSpec,
    WeightSpec,
)
from everport.tir.arith import Analyzer
from everport.tir.expr import Binary, Cast, Const, Expr, Select, Unary, substitute
from everport.tir.expr import Call as TirCall
from everport.tir.expr import Var as TirVar
from everport.tir.func import PrimFunc
from everport.tir.stmt import For, Store

WEIGHT_ALIGN = 64


def build_program(module: IRModule, name: str = "main") -> tuple[Program, list[np.ndarray]]:
    """The program of a planned function, and its weights in the order of `program.weights`."""
    return _ProgramBuilder(module, module[name]).build()


class _ProgramBuilder:
    def __init__(self, module: IRModule, function: Function) -> None:
        self.module = module
        self.function = function
        self.registers: dict[TirVar, str] = {}
        self.instructions: list[Instruction] = []
        self.names: set[str] = set()
        self.buffers: list[BufferSlot] = []
        self.slots: dict[RelaxExpr, int] = {}
        self.weights: list[WeightSpec] = []
        self.arrays: list[np.ndarray] = []
        self.weight_index: dict[str, int] = {}
        self.weight_names: set[str] = set()
        self.weight_end = 0
        self.kernels: dict[str, int] = {}
        self.analyzer = Analyzer()

    def build(self) -> tuple[Program, list[np.ndarray]]:
        f = self.function
        input_names = f.attr("input_names") or tuple(p.name for p in f.params)
        output_names = f.attr("output_names") or tuple(f"output_{k}" for k in range(len(f.results)))
        self._bind_symbols(input_names)
        inputs = tuple(self._spec(n, p.info) for n, p in zip(input_names, f.params, strict=True))
        outputs = tuple(self._spec(n, r.info) for n, r in zip(output_names, f.results, strict=True))
        arena, places = f.attr("plan", (Const(0), ()))
        body = self._body({n: (o, s) for n, o, s in places})
        program = Program(
            inputs,
            outputs,
            tuple(self.weights),
            tuple(self.buffers),
            tuple(self.kernels),
            self.expr(arena),
            (*self.instructions, *body),
        )
        return program, self.arrays

    def _spec(self, name: str, info: Any) -> TensorSpec:
        return TensorSpec(name, info.dtype.name, tuple(self.expr(d) for d in info.shape))

    # -- symbols -------------------------------------------------------------------------------------------------------

    def _register(self, wanted: str) -> str:
        name, number = wanted, 1
        while name in self.names:
            name, number = f"{wanted}_{number}", number + 1
        self.names.add(name)
        return name

    def _bind_symbols(self, input_names: tuple[str, ...]) -> None:
        """Reads each symbol where it first stands alone as a dimension, then checks all other dimensions."""
        checks: list[tuple[int, int, Expr]] = []
        dims: dict[tuple[int, int], str] = {}
        for k, p in enumerate(self.function.params):
            assert isinstance(p.info, TensorInfo)
            for axis, d in enumerate(p.info.shape):
                if isinstance(d, TirVar) and d not in self.registers:
                    self.registers[d] = self._register(d.name)
                    dims[k, axis] = self.registers[d]
                    self.instructions.append(Dim(self.registers[d], k, axis))
                else:
                    checks.append((k, axis, d))
        for k, axis, d in checks:
            read = self._register(f"{input_names[k]}.shape[{axis}]")
            self.instructions.append(Dim(read, k, axis))
            expected = self.expr(d)
            message = f"input {input_names[k]!r}, axis {axis}"
            self.instructions.append(Check(("==", read, expected), k, axis, expected, read, message))
        for symbol, lo, hi, divisor in self.function.attr("dim_ranges", ()):
            if symbol not in self.registers:
                continue
            register = self.registers[symbol]
            k, axis = next((key for key, value in dims.items() if value == register), (-1, 0))
            where = f"input {input_names[k]!r}, axis {axis} ({register})"
            if lo > 0:
                self.instructions.append(Check((">=", register, lo), k, axis, lo, register, f"{where} must be at least {lo}"))
            if hi is not None:
                self.instructions.append(Check(("<=", register, hi), k, axis, hi, register, f"{where} must be at most {hi}"))
            if divisor > 1:
                self.instructions.append(
                    Check(("==", ("%", register, divisor), 0), k, axis, divisor, register, f"{where} must be divisible by {divisor}")
                )
        self._check_extents()
        for a, b, reason in self.function.attr("constraints", ()):
            x, y = self.expr(a), self.expr(b)
            self.instructions.append(Check(("==", x, y), -1, 0, x, y, f"{reason}: {a} and {b} must be equal"))

    def _check_extents(self) -> None:
        """Refuses sizes for which an intermediate or output would have a negative extent; kernels rely on it."""
        analyzer = function_analyzer(self.function)
        seen: set[Expr] = set()
        for binding in self.function.bindings:
            for info in fields_of_info(binding.var.info):
                for d in info.shape:
                    if isinstance(d, (Const, TirVar)) or d in seen:
                        continue
                    seen.add(d)
                    if not analyzer.can_prove(Binary(">=", d, Const(0))):
                        value = self.expr(d)
                        message = f"the input is too small: the extent {d} of {binding.var.name!r} must be at least 0"
                        self.instructions.append(Check((">=", value, 0), -1, 0, 0, value, message))

    def expr(self, e: Expr) -> IntExpr:
        """A TIR expression over bound symbols as a program expression."""
        match e:
            case Const():
                return int(e.value)
            case TirVar():
                if e not in self.registers:
                    raise CompileError(
                        f"the dimension {e.name!r} cannot be told from the inputs' shapes",
                        hint="no input has it as a dimension of its own; fix it with --dim",
                    )
                return self.registers[e]
            case Binary() if e.op in ("tdiv", "tmod"):
                return ("//" if e.op == "tdiv" else "%", self.expr(e.a), self.expr(e.b))
            case Binary():
                return (e.op, self.expr(e.a), self.expr(e.b))
            case Select():
                return ("select", self.expr(e.cond), self.expr(e.a), self.expr(e.b))
            case Unary() if e.op == "neg":
                return ("-", 0, self.expr(e.a))
            case Unary() if e.op == "not":
                return ("not", self.expr(e.a))
            case Cast():
                return self.expr(e.a)
        raise CompileError(f"{e} is no shape arithmetic")

    # -- body ----------------------------------------------------------------------------------------------------------

    def _slot(self, slot: BufferSlot) -> int:
        self.buffers.append(slot)
        return len(self.buffers) - 1

    def _weight(self, value: Constant) -> int:
        digest = structural_hash(value)
        if digest not in self.weight_index:
            wanted = value.name or f"constant_{len(self.weights)}"
            name, number = wanted, 1
            while name in self.weight_names:
                name, number = f"{wanted}.{number}", number + 1
            self.weight_names.add(name)
            info = value.info
            size = value.data.nbytes
            spec = WeightSpec(name, info.dtype.name, tuple(value.data.shape), self.weight_end, size)
            self.weight_end += -(-size // WEIGHT_ALIGN) * WEIGHT_ALIGN
            self.weight_index[digest] = self._slot(BufferSlot("weight", len(self.weights), 0, size, info.dtype.name, name))
            self.weights.append(spec)
            self.arrays.append(value.data)
        return self.weight_index[digest]

    def _body(self, places: Mapping[str, tuple[Expr, Expr]]) -> list[Instruction]:
        f = self.function
        roots = storage_roots(f)
        body: list[Instruction] = []
        for k, p in enumerate(f.params):
            self.slots[p] = self._slot(BufferSlot("input", k, 0, 0, p.info.dtype.name, p.name))  # type: ignore[attr-defined]
        made = {b.var for b in f.bindings if isinstance(b, Binding) and isinstance(b.value, CallTIR)}
        fields = {
            b.var: b.value for b in f.bindings if isinstance(b.value, TupleGetItem) and isinstance(b.value.value, Var)
        }
        direct: dict[RelaxExpr, int] = {}
        copies: list[tuple[int, RelaxExpr]] = []
        for k, result in enumerate(f.results):
            root = roots.get(result, result) if isinstance(result, Var) else result
            if (root in made or root in fields) and root not in direct:
                direct[root] = self._slot(BufferSlot("output", k, 0, 0, result.info.dtype.name, f"output {k}"))  # type: ignore[attr-defined]
            else:
                copies.append((k, result))

        def slot_of(value: RelaxExpr) -> int:
            if isinstance(value, Var):
                value = roots.get(value, value)
            if isinstance(value, Constant):
                return self._weight(value)
            return self.slots[value]

        for binding in f.bindings:
            value = binding.value
            if isinstance(binding, MatchCast):
                raise CompileError("match_cast is not supported in compiled programs yet", span=binding.span)
            if isinstance(value, CallTIR):
                self._place(binding, direct, places, fields)
                body.append(self._launch(binding, value, slot_of, places))
            elif isinstance(value, Call) and binding.var not in roots:
                raise CompileError(f"{value.op} was not lowered", span=binding.span)
            elif isinstance(value, Tuple):
                raise CompileError("a tuple value was not resolved", span=binding.span)
        for k, result in copies:
            info = result.info
            assert isinstance(info, TensorInfo)
            target = self._slot(BufferSlot("output", k, 0, 0, info.dtype.name, f"output {k}"))
            body.append(Copy(target, slot_of(result), self.expr(nbytes(info))))
        return body

    def _place(
        self,
        binding: Binding,
        direct: Mapping[RelaxExpr, int],
        places: Mapping[str, tuple[Expr, Expr]],
        fields: Mapping[Var, TupleGetItem],
    ) -> None:
        info = binding.var.info
        if isinstance(info, TensorInfo):
            if binding.var in direct:
                self.slots[binding.var] = direct[binding.var]
            else:
                offset, size = places[binding.var.name]
                self.slots[binding.var] = self._arena(offset, size, info.dtype.name, binding.var.name)
            return
        for v, item in fields.items():
            if item.value is binding.var:
                if v in direct:
                    self.slots[v] = direct[v]
                else:
                    offset, size = places[f"{binding.var.name}.{item.index}"]
                    self.slots[v] = self._arena(offset, size, v.info.dtype.name, v.name)  # type: ignore[attr-defined]

    def _arena(self, offset: Expr, size: Expr, dtype: str, name: str) -> int:
        return self._slot(BufferSlot("arena", 0, self.expr(offset), self.expr(size), dtype, name))

    def _launch(self, binding: Binding, call: CallTIR, slot_of: Any, places: Mapping[str, tuple[Expr, Expr]]) -> Launch:
        func: PrimFunc = self.module[call.func]
        kernel = self.kernels.setdefault(call.func, len(self.kernels))
        slots = [slot_of(a) for a in call.args]
        if isinstance(binding.var.info, TensorInfo):
            slots.append(self.slots[binding.var])
        else:
            by_index = {
                b.value.index: b.var
                for b in self.function.bindings
                if isinstance(b.value, TupleGetItem) and b.value.value is binding.var
            }
            for position in range(func.num_outputs):
                if position in by_index:
                    slots.append(self.slots[by_index[position]])
                else:
                    offset, size = places[f"{binding.var.name}.{position}"]
                    slots.append(self._arena(offset, size, "u8", f"{binding.var.name}.{position}"))
        for k in range(func.num_workspaces):
            offset, size = places[f"{binding.var.name}#{k}"]
            slots.append(self._arena(offset, size, "u8", f"{binding.var.name}#{k}"))
        ints = tuple(self.expr(e) for e in call.ints)
        mapping: dict[TirVar, Expr] = dict(zip(func.scalars, call.ints, strict=True))
        flops = func.attr("flops")
        moved: Expr = Const(0)
        for b in func.buffers[: len(func.inputs) + func.num_outputs]:
            moved = moved + b.numel() * b.dtype.itemsize
        return Launch(
            kernel,
            tuple(slots),
            ints,
            0 if flops is None else self.expr(self.analyzer.simplify(substitute(flops, mapping))),
            self.expr(self.analyzer.simplify(substitute(moved, mapping))),
            binding.var.name,
        )


def count_flops(func: PrimFunc) -> Expr:
    """An estimate: arithmetic on floats and integers of the stored values, times the loops around each store."""
    total: Expr = Const(0)
    stack: list[tuple[Any, Expr]] = [(func.body, Const(1))]
    while stack:
        node, times = stack.pop()
        if isinstance(node, For):
            stack.append((node.body, times * node.extent))
            continue
        if isinstance(node, Store):
            work = sum(
                1 for n in pre_order(node.value) if isinstance(n, (Binary, TirCall)) and not (n.dtype.name == "i64" or n.dtype.is_bool)
            )
            total = total + times * work
            continue
        for name in node.NODE_FIELDS:
            child = getattr(node, name)
            for part in child if isinstance(child, tuple) else (child,):
                if part is not None and hasattr(part, "NODE_FIELDS") and not isinstance(part, Expr):
                    stack.append((part, times))
    return total


