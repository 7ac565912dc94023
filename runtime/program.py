"""The host program: what one inference does around the kernels, as data.

Integer expressions are an int, the name of an int64 register, or [op, a, b] (select: [op, a, b, c]) with floor division and
remainder. A program reads input dimensions into registers, computes, checks, and launches kernels on buffers that are
inputs, weights, outputs, or places in one arena. It is a stable format: JSON in the package, compiled to native code on CPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from .errors import RunError

IntExpr = Any  # int | str | tuple

BINARY: dict[str, Callable[[int, int], int]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "//": lambda a, b: a // b if b else 0,
    "%": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
    "==": lambda a, b: int(a == b),
    "!=": lambda a, b: int(a != b),
    "<": lambda a, b: int(a < b),
    "<=": lambda a, b: int(a <= b),
    ">": lambda a, b: int(a > b),
    ">=": lambda a, b: int(a >= b),
    "and": lambda a, b: int(bool(a) and bool(b)),
    "or": lambda a, b: int(bool(a) or bool(b)),
}
DTYPES = (
    "bool", "i4", "i8", "i16", "i32", "i64", "u4", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "f8e4m3fn",
    "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "i2", "u2", "f8e8m0", "f6e2m3", "f6e3m2", "f4e2m1",
)  # fmt: skip  (the position is the code in everport_tensor.dtype)
ITEMSIZE = {"i16": 2, "u16": 2, "f16": 2, "bf16": 2, "i32": 4, "u32": 4, "f32": 4, "i64": 8, "u64": 8, "f64": 8}  # the others: 1
MAX_RANK = 16


@dataclass(frozen=True)
class TensorSpec:
    """An input or output: its name, data type and shape (an integer expression a dimension)."""

    name: str
    dtype: str
    shape: tuple[IntExpr, ...]


@dataclass(frozen=True)
class WeightSpec:
    """A tensor of weights.safetensors: `offset` and `bytes` within its data section."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int
    bytes: int


@dataclass(frozen=True)
class BufferSlot:
    """Where a kernel argument lives. kind: input, weight, output (index into that list) or arena (offset, bytes)."""

    kind: str
    index: int = 0
    offset: IntExpr = 0
    bytes: IntExpr = 0
    dtype: str = "u8"
    name: str = ""


@dataclass(frozen=True)
class Dim:
    """register = dimension `axis` of input `input`."""

    register: str
    input: int
    axis: int


@dataclass(frozen=True)
class Let:
    """register = value."""

    register: str
    value: IntExpr


@dataclass(frozen=True)
class Check:
    """Fails the call unless `cond`; the error says `message` with `expected` and `actual` (argument: an input, or -1)."""

    cond: IntExpr
    argument: int
    axis: int
    expected: IntExpr
    actual: IntExpr
    message: str


@dataclass(frozen=True)
class Launch:
    """Runs a kernel on buffer slots and integers. `flops` and `bytes` (moved) are estimates for the profile."""

    kernel: int
    buffers: tuple[int, ...]
    ints: tuple[IntExpr, ...]
    flops: IntExpr = 0
    bytes: IntExpr = 0
    label: str = ""


@dataclass(frozen=True)
class Copy:
    """Copies `bytes` bytes from slot `source` to slot `target` (an input or weight that is also an output)."""

    target: int
    source: int
    bytes: IntExpr


INSTRUCTIONS: dict[str, type] = {"dim": Dim, "let": Let, "check": Check, "launch": Launch, "copy": Copy}
Instruction = Dim | Let | Check | Launch | Copy


@dataclass(frozen=True)
class Program:
    """One compiled function. `arena` is its size in bytes; every Dim, Let and Check comes before the first Launch or Copy."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    weights: tuple[WeightSpec, ...]
    buffers: tuple[BufferSlot, ...]
    kernels: tuple[str, ...]
    arena: IntExpr
    instructions: tuple[Instruction, ...]

    @property
    def launches(self) -> tuple[Launch, ...]:
        return tuple(i for i in self.instructions if isinstance(i, Launch))


def evaluate(e: IntExpr, registers: Mapping[str, int]) -> int:
    """The value of an integer expression."""
    if isinstance(e, int):
        return e
    if isinstance(e, str):
        return registers[e]
    if e[0] == "select":
        return evaluate(e[2] if evaluate(e[1], registers) else e[3], registers)
    if e[0] == "not":
        return int(not evaluate(e[1], registers))
    return BINARY[e[0]](evaluate(e[1], registers), evaluate(e[2], registers))


def registers_of(e: IntExpr) -> list[str]:
    """The registers that an expression reads."""
    if isinstance(e, str):
        return [e]
    return [r for part in e[1:] for r in registers_of(part)] if isinstance(e, tuple) else []


def text_of(e: IntExpr) -> str:
    """An integer expression for people."""
    if isinstance(e, (int, str)):
        return str(e)
    if e[0] in ("min", "max", "select", "not"):
        return f"{e[0]}({', '.join(text_of(a) for a in e[1:])})"
    return "(" + f" {e[0]} ".join(text_of(a) for a in e[1:]) + ")"


def bind_dims(program: Program, shapes: list[tuple[int, ...]]) -> dict[str, int]:
    """Registers for given input shapes (ranks must fit); checks are not run."""
    registers: dict[str, int] = {}
    for i in program.instructions:
        if isinstance(i, Dim):
            registers[i.register] = shapes[i.input][i.axis]
        elif isinstance(i, Let):
            registers[i.register] = evaluate(i.value, registers)
    return registers


def to_json(program: Program) -> dict[str, Any]:
    """Plain lists and dicts."""
    kinds = {cls: name for name, cls in INSTRUCTIONS.items()}

    def plain(value: Any) -> Any:
        if isinstance(value, tuple):
            return [plain(v) for v in value]
        if isinstance(value, (TensorSpec, WeightSpec, BufferSlot)):
            return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
        return value

    result = {f.name: plain(getattr(program, f.name)) for f in fields(program) if f.name != "instructions"}
    result["instructions"] = [
        [kinds[type(i)], *(plain(getattr(i, f.name)) for f in fields(i))] for i in program.instructions
    ]
    return result


def from_json(data: Any) -> Program:
    """Reads what to_json wrote and checks all of it; a RunError says what is wrong."""
    try:
        program = Program(
            tuple(TensorSpec(t["name"], t["dtype"], _expr(t["shape"])) for t in data["inputs"]),
            tuple(TensorSpec(t["name"], t["dtype"], _expr(t["shape"])) for t in data["outputs"]),
            tuple(
                WeightSpec(w["name"], w["dtype"], tuple(w["shape"]), w["offset"], w["bytes"]) for w in data["weights"]
            ),
            tuple(
                BufferSlot(b["kind"], b["index"], _expr(b["offset"]), _expr(b["bytes"]), b["dtype"], b["name"])
                for b in data["buffers"]
            ),
            tuple(data["kernels"]),
            _expr(data["arena"]),
            tuple(INSTRUCTIONS[i[0]](*(_expr(a) for a in i[1:])) for i in data["instructions"]),
        )
        verify(program)
    except (AttributeError, KeyError, TypeError, IndexError, ValueError, RecursionError) as error:
        raise RunError(f"the host program is malformed: {type(error).__name__}: {error}") from None
    return program


def _expr(value: Any) -> Any:
    return tuple(_expr(v) for v in value) if isinstance(value, list) else value


def verify(program: Program) -> None:
    """Every index in range, every register set before it is read, every expression well formed; else a RunError."""
    known: set[str] = set()

    def check(e: IntExpr, what: str, depth: int = 0) -> None:
        if depth > 200:
            raise RunError(f"host program: {what} is nested too deep")
        if isinstance(e, bool) or e is None or isinstance(e, (float, dict)):
            raise RunError(f"host program: {what} is no integer expression")
        if isinstance(e, int):
            if not -(2**63) <= e < 2**63:
                raise RunError(f"host program: {what} has a number outside 64 bits")
            return
        if isinstance(e, str):
            if e not in known:
                raise RunError(f"host program: {what} reads the register {e!r} before it is set")
            return
        arity = 3 if e and e[0] == "select" else 1 if e and e[0] == "not" else 2
        if not e or (e[0] not in BINARY and e[0] not in ("select", "not")) or len(e) != arity + 1:
            raise RunError(f"host program: {what} has an unknown operation {e!r}")
        for part in e[1:]:
            check(part, what, depth + 1)

    def index(value: Any, limit: int, what: str) -> None:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < limit:
            raise RunError(f"host program: {what} {value!r} is out of range")

    specs: list[TensorSpec | WeightSpec] = [*program.inputs, *program.outputs, *program.weights]
    for spec in specs:
        if not isinstance(spec.name, str) or spec.dtype not in DTYPES or len(spec.shape) > MAX_RANK:
            raise RunError(f"host program: tensor {spec.name!r} has an unknown type or too many dimensions")
    for w in program.weights:
        if not all(isinstance(d, int) and d >= 0 for d in (*w.shape, w.offset, w.bytes)):
            raise RunError(f"host program: weight {w.name!r} has a malformed shape or place")
    started = False
    for i in program.instructions:
        if isinstance(i, (Dim, Let, Check)) and started:
            raise RunError("host program: a dimension is computed after the first launch")
        if isinstance(i, Dim):
            index(i.input, len(program.inputs), "input")
            index(i.axis, len(program.inputs[i.input].shape), "axis")
            _register(i.register, known)
        elif isinstance(i, Let):
            check(i.value, "a register")
            _register(i.register, known)
        elif isinstance(i, Check):
            for e in (i.cond, i.expected, i.actual):
                check(e, "a check")
            if i.argument != -1:
                index(i.argument, len(program.inputs), "the argument of a check")
            if not isinstance(i.axis, int) or not isinstance(i.message, str):
                raise RunError("host program: a check is malformed")
        elif isinstance(i, Launch):
            started = True
            index(i.kernel, len(program.kernels), "kernel")
            for b in i.buffers:
                index(b, len(program.buffers), "buffer")
            for e in (*i.ints, i.flops, i.bytes):
                check(e, "an argument of a kernel")
        else:
            started = True
            index(i.target, len(program.buffers), "buffer")
            index(i.source, len(program.buffers), "buffer")
            check(i.bytes, "the size of a copy")
    check(program.arena, "the arena")
    for spec in (*program.inputs, *program.outputs):
        for d in spec.shape:
            check(d, f"the shape of {spec.name!r}")
    limits = {"input": len(program.inputs), "output": len(program.outputs), "weight": len(program.weights)}
    for slot in program.buffers:
        if slot.kind == "arena":
            check(slot.offset, "a buffer's offset")
            check(slot.bytes, "a buffer's size")
        elif slot.kind in limits:
            index(slot.index, limits[slot.kind], slot.kind)
        else:
            raise RunError(f"host program: a buffer of unknown kind {slot.kind!r}")
    for name in program.kernels:
        if not isinstance(name, str):
            raise RunError("host program: a kernel has no name")


def _register(name: Any, known: set[str]) -> None:
    if not isinstance(name, str) or name in known:
        raise RunError(f"host program: the register {name!r} is malformed or set twice")
    known.add(name)


def script(program: Program) -> str:
    """The program for people, one instruction a line."""
    lines = []
    for title, specs in (("input", program.inputs), ("output", program.outputs)):
        for s in specs:
            lines.append(f"{title} {s.name}: {s.dtype}[{', '.join(text_of(d) for d in s.shape)}]")
    lines.append(f"weights: {len(program.weights)} tensors, {sum(w.bytes for w in program.weights)} bytes")
    lines.append(f"arena: {text_of(program.arena)} bytes")
    for number, b in enumerate(program.buffers):
        where = f"arena + {text_of(b.offset)}, {text_of(b.bytes)} bytes" if b.kind == "arena" else f"{b.kind} {b.index}"
        lines.append(f"b{number} {b.name or '-'}: {where}")
    for i in program.instructions:
        match i:
            case Dim():
                lines.append(f"{i.register} = dim(input {i.input}, axis {i.axis})")
            case Let():
                lines.append(f"{i.register} = {text_of(i.value)}")
            case Check():
                lines.append(f"check {text_of(i.cond)}: {i.message}")
            case Launch():
                ints = f"; {', '.join(text_of(e) for e in i.ints)}" if i.ints else ""
                lines.append(f"launch {program.kernels[i.kernel]}({', '.join(f'b{b}' for b in i.buffers)}{ints})")
            case Copy():
                lines.append(f"copy b{i.target} <- b{i.source}, {text_of(i.bytes)} bytes")
    return "\n".join(lines) + "\n"
