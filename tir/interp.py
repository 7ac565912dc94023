"""The reference interpreter of TIR, scheduled and lowered: the oracle that passes, schedules and code generators are held to.

A PrimFunc becomes Python source with plain loops over numpy scalars. Semantics that every code generator shares:
integers wrap; `//` and `%` floor, and give 0 for a zero divisor; float arithmetic rounds after each operation in the
expression's own type (f16, bf16 and fp8 compute in f32 and round); min and max propagate NaN; float to integer truncates
and saturates, NaN gives 0; `select` evaluates only the side it takes. Every access is checked against the buffer's shape.
Parallel loops may run in a shuffled order to expose races. Loops bound to threads run one after the other, so a
function with barriers is refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from everport.ir.dtype import DType
from everport.tir.buffer import Buffer
from everport.tir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    fold_int,
    free_vars,
)
from everport.tir.func import PrimFunc
from everport.tir.intrin import INTRINS
from everport.tir.lower.init import lower_init
from everport.tir.stmt import Allocate, Block, Evaluate, For, If, Let, Seq, Stmt, Store, While, blocks_of


class InterpError(Exception):
    """An execution that has no meaning: an access outside a buffer, arguments that don't fit."""


def run(func: PrimFunc, *args: Any, order: str = "serial", seed: int = 0) -> None:
    """Executes `func` on numpy arrays (in parameter order; outputs and workspaces are written in place) and integers.

    `order="random"` shuffles the iterations of parallel loops with `seed`.
    """
    if len(args) != len(func.params):
        raise InterpError(f"{func.name} takes {len(func.params)} arguments, got {len(args)}")
    writer = _Writer()
    names = []
    scalars: dict[Var, Any] = {p: int(a) if not p.dtype.is_float else a for p, a in zip(func.params, args, strict=True) if isinstance(p, Var)}
    if _reduces_nothing(func, scalars):
        func = lower_init(func)
    names.extend(writer.name(param) for param in func.params)
    ordered: list[Any] = []
    for param, arg in zip(func.params, args, strict=True):
        if isinstance(param, Buffer):
            shape = tuple(_static(s, scalars) for s in param.shape)
            if arg.dtype != param.dtype.numpy or int(np.prod(shape)) != arg.size:
                raise InterpError(
                    f"{func.name}: buffer {param.name!r} is {param.dtype}{list(shape)}, got {arg.dtype}{list(arg.shape)}"
                )
            view = arg.reshape(shape)
            if arg.size and not np.shares_memory(view, arg):
                raise InterpError(f"{func.name}: the array for {param.name!r} is not contiguous")
            ordered.append(view)
        else:
            ordered.append(scalars[param])
    source = writer.function(func, names)
    environment = dict(_ENVIRONMENT)
    environment.update(writer.constants)
    environment["_order"] = _shuffled(seed) if order == "random" else range
    exec(compile(source, f"<interp {func.name}>", "exec"), environment)
    with np.errstate(all="ignore"):
        environment["_kernel"](*ordered)


def _reduces_nothing(func: PrimFunc, scalars: dict[Var, Any]) -> bool:
    """True if a reduction has no steps, so that its init would never be met."""
    for block in blocks_of(func.body):
        for it in block.iters if block.init is not None else ():
            if it.kind == "reduce" and set(free_vars(it.extent)) <= set(scalars) and _static(it.extent, scalars) <= 0:
                return True
    return False


def call(func: PrimFunc, inputs: Sequence[np.ndarray], ints: Sequence[int] = (), **options: Any) -> list[np.ndarray]:
    """Allocates outputs and workspaces, runs, and gives the outputs."""
    scalars = dict(zip(func.scalars, ints, strict=True))
    made = []
    for buffer in func.buffers[len(func.inputs) :]:
        made.append(_fresh(tuple(_static(s, scalars) for s in buffer.shape), buffer.dtype))
    run(func, *inputs, *made, *ints, **options)
    return made[: func.num_outputs]


def evaluate(e: Expr, values: dict[Var, int]) -> int:
    """The value of an integer expression without loads."""
    return _static(e, values)


def _static(e: Expr, values: dict[Var, Any]) -> int:
    match e:
        case Const():
            return int(e.value)
        case Var():
            if e not in values:
                raise InterpError(f"the symbol {e.name!r} has no value")
            return int(values[e])
        case Binary():
            found = fold_int(e.op, _static(e.a, values), _static(e.b, values))
            if found is None:
                raise InterpError(f"{e} has no value")
            return found
        case Select():
            return _static(e.a if _static(e.cond, values) else e.b, values)
        case Unary():
            inner = _static(e.a, values)
            return {"neg": -inner, "not": int(not inner), "~": ~inner}[e.op]
        case Cast():
            return _static(e.a, values)
    raise InterpError(f"{e} is no integer expression of symbols")


def _shuffled(seed: int) -> Any:
    source = random.Random(seed)

    def order(extent: int) -> list[int]:
        indices = list(range(extent))
        source.shuffle(indices)
        return indices

    return order


def _fresh(shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    """Memory as it comes: NaN or a pattern, so that reads before writes show."""
    if dtype.is_float:
        return np.full(shape, np.nan).astype(dtype.numpy)
    return np.full(shape, 1 if dtype.is_bool else 0x55 & int(dtype.max_value), dtype=np.int64).astype(dtype.numpy)


def _check(buffer: np.ndarray, index: tuple, name: str) -> None:
    for axis, (i, n) in enumerate(zip(index, buffer.shape, strict=True)):
        low, high = (i, i) if not isinstance(i, np.ndarray) else (i.min(), i.max())
        if low < 0 or high >= n:
            raise InterpError(f"{name}[{', '.join(map(str, index))}] is outside shape {list(buffer.shape)} on axis {axis}")


def _load(buffer: np.ndarray, index: tuple, name: str, mask: Any = None) -> Any:
    if mask is not None:
        lanes = np.asarray(mask, dtype=bool)
        wide = any(isinstance(i, np.ndarray) for i in index)
        if not lanes.any():
            return np.zeros(lanes.shape if wide else (), buffer.dtype)[()]
        if wide:
            first = int(np.argmax(lanes))
            index = tuple(np.where(lanes, i, i[first]) if isinstance(i, np.ndarray) else i for i in index)
    _check(buffer, index, name)
    return buffer[index]


def _load_int(buffer: np.ndarray, index: tuple, name: str, mask: Any = None) -> Any:
    value = _load(buffer, index, name, mask)
    return value.astype(object) if isinstance(value, np.ndarray) else int(value)


def _store(buffer: np.ndarray, index: tuple, name: str, value: Any, mask: Any = None) -> None:
    if mask is not None:
        lanes = np.broadcast_to(np.asarray(mask, dtype=bool), np.shape(index[-1]))
        index = tuple(np.broadcast_to(np.asarray(i), lanes.shape)[lanes] for i in index)
        value = np.broadcast_to(np.asarray(value), lanes.shape)[lanes]
        if not lanes.any():
            return
    _check(buffer, index, name)
    buffer[index] = value


def _wrap(value: Any, bits: int, signed: bool) -> Any:
    if isinstance(value, np.ndarray):
        return np.array([_wrap(int(v), bits, signed) for v in value.flat], dtype=object).reshape(value.shape)
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def _each(f: Any) -> Any:
    def apply(a: Any, b: Any) -> Any:
        if isinstance(a, np.ndarray) or isinstance(b, np.ndarray):
            x, y = np.broadcast_arrays(np.asarray(a, dtype=object), np.asarray(b, dtype=object))
            return np.array([f(int(p), int(q)) for p, q in zip(x.flat, y.flat, strict=True)], dtype=object).reshape(x.shape)
        return f(int(a), int(b))

    return apply


def _integer(op: str) -> Any:
    def apply(a: int, b: int) -> int:
        found = fold_int(op, a, b)
        return 0 if found is None else found

    return _each(apply)


def _to_int(value: Any, low: int, high: int) -> Any:
    """Float to integer: truncate, saturate, NaN to 0."""
    if isinstance(value, np.ndarray):
        return np.array([_to_int(v, low, high) for v in value.flat], dtype=object).reshape(value.shape)
    number = float(value)
    if number != number:
        return 0
    if number in (float("inf"), float("-inf")):
        return high if number > 0 else low
    return min(max(int(number), low), high)


def _as(value: Any, dtype: np.dtype) -> Any:
    """A number as a float of `dtype`, rounded once."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float64).astype(dtype) if value.dtype == object else value.astype(dtype)
    if isinstance(value, int) and not isinstance(value, bool):
        wide = np.int64(value) if -(2**63) <= value < 2**63 else np.uint64(value)
        return wide.astype(np.float32).astype(dtype) if dtype.itemsize < 4 else wide.astype(dtype)
    return np.asarray(value).astype(dtype)[()]


def _select_lanes(cond: Any, a: Any, b: Any) -> Any:
    return np.where(np.asarray(cond, dtype=bool), a, b)


def _intrinsic(name: str, dtype: np.dtype, *args: Any) -> Any:
    row = INTRINS[name]
    if row.effect:
        raise InterpError(f"the interpreter does not run {name}")
    if row.integers and not isinstance(args[0], (np.floating, np.ndarray)) and isinstance(args[0], int):
        return abs(args[0]) if name == "abs" else int(args[0]).bit_count()
    wide = [np.asarray(a).astype(np.float32) if np.asarray(a).dtype.itemsize < 4 else np.asarray(a) for a in args]
    result = row.numpy(*wide)
    return np.asarray(result).astype(bool)[()] if row.result == "bool" else np.asarray(result).astype(dtype)[()]


_ENVIRONMENT: dict[str, Any] = {
    "np": np,
    "_load": _load,
    "_load_int": _load_int,
    "_store": _store,
    "_wrap": _wrap,
    "_floordiv": _integer("//"),
    "_floormod": _integer("%"),
    "_tdiv": _integer("tdiv"),
    "_tmod": _integer("tmod"),
    "_and": _each(lambda a, b: a & b),
    "_or": _each(lambda a, b: a | b),
    "_xor": _each(lambda a, b: a ^ b),
    "_shl": _each(lambda a, b: a << b if 0 <= b < 64 else 0),
    "_shr": _each(lambda a, b: a >> b if 0 <= b < 64 else (0 if a >= 0 else -1)),
    "_imin": _each(min),
    "_imax": _each(max),
    "_to_int": _to_int,
    "_as": _as,
    "_fresh": _fresh,
    "_lanes": _select_lanes,
    "_intrinsic": _intrinsic,
}

_INT_CALLS = {
    "//": "_floordiv", "%": "_floormod", "tdiv": "_tdiv", "tmod": "_tmod", "&": "_and", "|": "_or", "^": "_xor", "<<": "_shl",
    ">>": "_shr", "min": "_imin", "max": "_imax",
}  # fmt: skip


class _Writer:
    """Writes Python source for one PrimFunc."""

    def __init__(self) -> None:
        self.names: dict[Any, str] = {}
        self.constants: dict[str, Any] = {}
        self.lines: list[str] = []
        self.shared: dict[Expr, str] = {}  # parts of the statement being written that have a name
        self.masks: list[str] = []  # conditions a lane that the expression being written counts under

    def name(self, node: Var | Buffer) -> str:
        if node not in self.names:
            safe = "".join(c if c.isalnum() else "_" for c in node.name)
            self.names[node] = f"{safe}_{len(self.names)}"
        return self.names[node]

    def constant(self, value: Any) -> str:
        name = f"_c{len(self.constants)}"
        self.constants[name] = value
        return name

    def function(self, func: PrimFunc, names: list[str]) -> str:
        self.lines = [f"def _kernel({', '.join(names)}):"]
        self.stmt(func.body, 1)
        return "\n".join(self.lines)

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)

    def stmt(self, s: Stmt, depth: int) -> None:
        match s:
            case Seq():
                for part in s.stmts:
                    self.stmt(part, depth)
                if not s.stmts:
                    self.line(depth, "pass")
            case Store():
                self.store(s, depth)
                self.shared = {}
            case For():
                order = "_order" if s.kind == "parallel" else "range"
                self.line(depth, f"for {self.name(s.var)} in {order}({self.expr(s.extent)}):")
                self.stmt(s.body, depth + 1)
            case If():
                self.line(depth, f"if {self.expr(s.cond)}:")
                self.stmt(s.then, depth + 1)
                if s.otherwise is not None:
                    self.line(depth, "else:")
                    self.stmt(s.otherwise, depth + 1)
            case While():
                self.line(depth, f"while {self.expr(s.cond)}:")
                self.stmt(s.body, depth + 1)
            case Let():
                self.line(depth, f"{self.name(s.var)} = {self.expr(s.value)}")
                self.stmt(s.body, depth)
            case Evaluate():
                self.line(depth, self.expr(s.value))
            case Allocate():
                self.allocate(s.buffer, depth)
                self.stmt(s.body, depth)
            case Block():
                self.block(s, depth)
            case _:
                raise TypeError(f"not a statement: {type(s).__name__}")

    def store(self, s: Store, depth: int) -> None:
        target = f"{self.name(s.buffer)}, "
        if s.mask is None:
            self.temporaries(s, depth)
            self.line(depth, f"_store({target}{self.index(s.indices)}, {s.buffer.name!r}, {self.expr(s.value)})")
            return
        if max(s.value.lanes, *(i.lanes for i in s.indices)) == 1:
            self.line(depth, f"if {self.expr(s.mask)}:")
            self.store(s.with_fields(mask=None), depth + 1)
            return
        mask = self.constant(None)
        self.line(depth, f"{mask} = {self.expr(s.mask)}")
        index, value = self.under(mask, lambda: self.index(s.indices)), self.under(mask, lambda: self.expr(s.value))
        self.line(depth, f"_store({target}{index}, {s.buffer.name!r}, {value}, {mask})")

    def temporaries(self, s: Store, depth: int) -> None:
        """Names for what a store uses several times and always evaluates, or the text could grow exponentially."""
        self.shared = {}
        uses: dict[Expr, int] = {}
        order: list[Expr] = []
        stack: list[tuple[Expr, bool]] = [(s.value, False)]
        while stack:
            e, done = stack.pop()
            if done:
                order.append(e)
                continue
            uses[e] = uses.get(e, 0) + 1
            if uses[e] > 1:
                continue
            stack.append((e, True))
            match e:
                case Binary():
                    stack += [(e.a, False)] if e.op in ("and", "or") else [(e.a, False), (e.b, False)]
                case Select():
                    stack.append((e.cond, False))
                case Unary() | Cast() | Broadcast():
                    stack.append((e.a, False))
                case Call():
                    stack += [(a, False) for a in e.args]
        for e in order:
            if uses[e] > 1 and not isinstance(e, (Const, Var)):
                text, name = self.expr(e), self.constant(None)
                self.line(depth, f"{name} = {text}")
                self.shared[e] = name

    def under(self, mask: str, write: Callable[[], str]) -> str:
        """What `write` gives when only the lanes of `mask` count: other lanes load nothing."""
        self.masks.append(mask)
        text = write()
        self.masks.pop()
        return text

    def allocate(self, buffer: Buffer, depth: int) -> None:
        shape = "(" + "".join(f"{self.expr(e)}, " for e in buffer.shape) + ")"
        self.line(depth, f"{self.name(buffer)} = _fresh({shape}, {self.constant(buffer.dtype)})")

    def block(self, b: Block, depth: int) -> None:
        for it, binding in zip(b.iters, b.bindings, strict=True):
            self.line(depth, f"{self.name(it.var)} = {self.expr(binding)}")
        if not (isinstance(b.predicate, Const) and b.predicate.value):
            self.line(depth, f"if {self.expr(b.predicate)}:")
            depth += 1
        for buffer in b.allocs:
            self.allocate(buffer, depth)
        if b.init is not None:
            zeros = " and ".join(f"{self.name(i.var)} == 0" for i in b.iters if i.kind == "reduce") or "True"
            self.line(depth, f"if {zeros}:")
            self.stmt(b.init, depth + 1)
        self.stmt(b.body, depth)

    def index(self, indices: tuple[Expr, ...]) -> str:
        parts = []
        for i in indices:
            text = self.expr(i)
            parts.append(text if i.lanes == 1 else f"np.asarray({text}, dtype=np.int64)")
        return "(" + "".join(f"{p}, " for p in parts) + ")"

    def expr(self, e: Expr) -> str:
        if e in self.shared:
            return self.shared[e]
        match e:
            case Const():
                if e.dtype.is_float:
                    return self.constant(np.asarray(e.value).astype(e.dtype.numpy)[()])
                return str(bool(e.value)) if e.dtype.is_bool else f"({e.value})"
            case Var():
                return self.name(e)
            case Binary():
                return self.binary(e)
            case Unary():
                inner = self.expr(e.a)
                if e.op == "not":
                    return f"(not {inner})" if e.lanes == 1 else f"np.logical_not({inner})"
                text = f"({'-' if e.op == 'neg' else '~'}{inner})"
                return self.wrapped(text, e)
            case Select():
                if e.cond.lanes == 1:
                    return f"({self.expr(e.a)} if {self.expr(e.cond)} else {self.expr(e.b)})"
                mask = self.constant(None)
                cond = self.expr(e.cond)
                a, b = self.under(mask, lambda: self.expr(e.a)), self.under(f"np.logical_not({mask})", lambda: self.expr(e.b))
                return f"_lanes(({mask} := {cond}), {a}, {b})"
            case Cast():
                return self.cast(e)
            case Call():
                args = "".join(f", {self.expr(a)}" for a in e.args)
                return self.wrapped(f"_intrinsic({e.name!r}, {self.constant(e.dtype.numpy)}{args})", e)
            case Load():
                loader = "_load" if e.dtype.is_float or e.dtype.is_bool else "_load_int"
                masks = f", np.logical_and.reduce([{', '.join(self.masks)}])" if self.masks else ""
                return f"{loader}({self.name(e.buffer)}, {self.index(e.indices)}, {e.buffer.name!r}{masks})"
            case Ramp():
                return f"({self.expr(e.base)} + {self.expr(e.stride)} * np.arange({e.lanes}))"
            case Broadcast():
                return f"np.array([{self.expr(e.a)}] * {e.lanes}{'' if not e.dtype.is_int else ', dtype=object'})"
        raise TypeError(f"not an expression: {type(e).__name__}")

    def wrapped(self, text: str, e: Expr) -> str:
        if not e.dtype.is_int or (e.dtype.name == "i64" and not any(isinstance(n, Load) for n in _nodes(e))):
            return text
        return f"_wrap({text}, {e.dtype.bits}, {e.dtype.kind == 'int'})"

    def binary(self, e: Binary) -> str:
        if e.op in ("and", "or") and e.lanes > 1:
            mask = self.constant(None)
            first = self.expr(e.a)
            second = self.under(mask if e.op == "and" else f"np.logical_not({mask})", lambda: self.expr(e.b))
            return f"np.logical_{e.op}(({mask} := {first}), {second})"
        a, b = self.expr(e.a), self.expr(e.b)
        if e.op in ("and", "or"):
            return f"({a} {e.op} {b})"
        if e.op in ("==", "!=", "<", "<=", ">", ">="):
            return f"({a} {e.op} {b})"
        if e.a.dtype.is_int or e.a.dtype.is_bool:
            if e.op in _INT_CALLS:
                call_text = f"{_INT_CALLS[e.op]}({a}, {b})"
                return call_text if e.op in ("min", "max", "&", "|", "%", "tmod") else self.wrapped(call_text, e)
            return self.wrapped(f"({a} {e.op} {b})", e)
        if e.op in ("min", "max"):
            return f"np.{e.op}imum({a}, {b})"
        return f"({a} {e.op} {b})"

    def cast(self, e: Cast) -> str:
        inner, source, target = self.expr(e.a), e.a.dtype, e.dtype
        if target.is_bool:
            return f"({inner} != 0)"
        if target.is_int:
            if source.is_float:
                return f"_to_int({inner}, {target.min_value}, {target.max_value})"
            if source.is_bool:
                return f"int({inner})" if e.lanes == 1 else f"np.asarray({inner}).astype(int).astype(object)"
            return f"_wrap({inner}, {target.bits}, {target.kind == 'int'})"
        if source.is_bool:
            inner = f"(1 if {inner} else 0)" if e.lanes == 1 else f"np.asarray({inner}).astype(np.float32)"
        return f"_as({inner}, {self.constant(target.numpy)})"


def _nodes(e: Expr) -> list[Expr]:
    found, stack = [], [e]
    while stack:
        node = stack.pop()
        found.append(node)
        match node:
            case Binary():
                stack += (node.a, node.b)
            case Unary() | Cast() | Broadcast():
                stack.append(node.a)
            case Select():
                stack += (node.a, node.b)
            case Call():
                stack += node.args
            case Ramp():
                stack += (node.base, node.stride)
    return found


def symbols_of(func: PrimFunc) -> list[Var]:
    """The free shape symbols of a function's buffers."""
    return free_vars([s for b in func.buffers for s in b.shape])
