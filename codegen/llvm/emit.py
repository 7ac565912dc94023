"""Device TIR to LLVM text: one kernel function and a body for each of its parallel nests.

Kernel: `void @NAME(ptr pool, ptr buffers, ptr ints)`. Each nest is an internal function with its buffers as noalias
pointers; a parallel nest also takes the range of its outermost loop and is started through @everport_parallel.
Local buffers are allocas that LLVM promotes to registers.
"""

from __future__ import annotations

from collections.abc import Callable

from everport.codegen.llvm.convert import Conversions
from everport.codegen.llvm.math import MathLibrary
from everport.codegen.llvm.small_float import vector
from everport.codegen.llvm.types import literal, memory_type, splat, value_type
from everport.ir.dtype import DType, boolean, i64
from everport.ir.node import children, post_order
from everport.tir.arith import Analyzer
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
    as_int,
    free_vars,
)
from everport.tir.func import PrimFunc
from everport.tir.lower.blocks import within_loop
from everport.tir.stmt import Allocate, Evaluate, For, If, Let, Seq, Stmt, Store, While

_FLOAT_OPS = {"+": "fadd", "-": "fsub", "*": "fmul", "/": "fdiv"}
_INT_OPS = {"+": "add", "-": "sub", "*": "mul", "&": "and", "|": "or", "^": "xor"}
_ORDERED = {"==": "oeq", "!=": "une", "<": "olt", "<=": "ole", ">": "ogt", ">=": "oge"}
_SIGNED = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}
_UNSIGNED = {"==": "eq", "!=": "ne", "<": "ult", "<=": "ule", ">": "ugt", ">=": "uge"}


def emit_kernel(func: PrimFunc, symbol: str) -> str:
    """The LLVM text of one device PrimFunc under a symbol name, without target triple or data layout."""
    module = _Module(symbol, func)
    return module.text()


class _Module:
    """The functions of one kernel and the declarations they need."""

    def __init__(self, symbol: str, func: PrimFunc) -> None:
        self.symbol = symbol
        self.func = func
        self.functions: list[str] = []
        self.math = MathLibrary()
        self.nests = 0
        self.loads: dict[Expr, bool] = {}  # whether an expression holds a load

    def text(self) -> str:
        outer = _Function(self, self.func)
        outer.begin_wrapper()
        for nest in _nests(self.func.body):
            self._nest(outer, nest)
        outer.line("ret void")
        main = "\n".join(
            [f"define void @{self.symbol}(ptr %pool, ptr %buffers, ptr %ints) nounwind {{", "entry:", *outer.lines, "}"]
        )
        declarations = [
            "declare void @everport_parallel(ptr, ptr, ptr, ptr, i64)",
            "@everport_zeros = internal constant [64 x i8] zeroinitializer, align 64",
        ]
        return "\n\n".join(["\n".join(declarations), *self.math.texts(), *self.functions, main]) + "\n"

    def _nest(self, outer: _Function, nest: Stmt) -> None:
        number = self.nests
        self.nests += 1
        parallel = isinstance(nest, For) and nest.kind == "parallel"
        name = f"{self.symbol}.n{number}"
        body = _Function(self, self.func)
        used_buffers, used_scalars = body.begin_nest(nest)
        if isinstance(nest, For) and parallel:
            body.range_loop(nest)
        else:
            body.stmt(nest)
        body.line("ret void")
        params = [f"ptr noalias %{body.param_name(b)}" for b in used_buffers]
        params += [f"{value_type(s.dtype)} %{body.param_name(s)}" for s in used_scalars]
        if parallel:
            params += ["i64 %range_begin", "i64 %range_end"]
        header = f"define internal void @{name}.body({', '.join(params)}) nounwind noinline {{"
        self.functions.append("\n".join([header, "entry:", *body.allocas, *body.lines, "}"]))
        starter = _Function(self, self.func)
        args = starter.load_params(used_buffers, used_scalars)
        if parallel:
            args += ["i64 %range_begin", "i64 %range_end"]
        starter.line(f"call void @{name}.body({', '.join(args)})")
        starter.line("ret void")
        extra = ", i64 %range_begin, i64 %range_end" if parallel else ""
        header = f"define internal void @{name}(ptr %buffers, ptr %ints{extra}) nounwind {{"
        self.functions.append("\n".join([header, "entry:", *starter.lines, "}"]))
        if parallel and isinstance(nest, For):
            outer.load_scalars()
            extent = outer.expr(nest.extent)
            outer.line(f"call void @everport_parallel(ptr %pool, ptr @{name}, ptr %buffers, ptr %ints, i64 {extent})")
        else:
            outer.line(f"call void @{name}(ptr %buffers, ptr %ints)")


def _nests(body: Stmt) -> list[Stmt]:
    return list(body.stmts) if isinstance(body, Seq) else [body]


class _Function:
    """Writes the body of one LLVM function."""

    def __init__(self, module: _Module, func: PrimFunc) -> None:
        self.module = module
        self.func = func
        self.lines: list[str] = []
        self.allocas: list[str] = []
        self.values: dict[Var, str] = {}
        self.pointers: dict[Buffer, str] = {}
        self.count = 0
        self.analyzer = Analyzer()
        for symbol in func.scalars:
            if symbol.dtype is i64:
                self.analyzer.bind(symbol, 0, None)
        self.guards: list[tuple[str, int]] = []  # conditions of the selects around
        self.cache: list[dict[Expr, str]] = [{}]  # index arithmetic, by block
        self.memo: list[dict[Expr, str]] = [{}]  # everything else, within one statement and one set of guards
        self.convert = Conversions(self.assign, module.math.declare)
        self.block = "entry"

    # -- text ----------------------------------------------------------------------------------------------------------

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def fresh(self) -> str:
        self.count += 1
        return f"%t{self.count}"

    def assign(self, text: str) -> str:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def new_label(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"

    # -- parameters ----------------------------------------------------------------------------------------------------

    def begin_wrapper(self) -> None:
        self.scalars_loaded = False

    def load_scalars(self) -> None:
        if self.scalars_loaded:
            return
        self.scalars_loaded = True
        for position, scalar in enumerate(self.func.scalars):
            self.values[scalar] = self._load_scalar(position, scalar)

    def _load_scalar(self, position: int, scalar: Var) -> str:
        where = self.assign(f"getelementptr i64, ptr %ints, i64 {position}")
        word = self.assign(f"load i64, ptr {where}")
        return word if scalar.dtype is i64 else self.assign(f"trunc i64 {word} to {value_type(scalar.dtype)}")

    def load_params(self, buffers: list[Buffer], scalars: list[Var]) -> list[str]:
        """Reads buffer pointers and integers from the argument arrays, as call arguments."""
        args = []
        for position, buffer in enumerate(self.func.buffers):
            if buffer in buffers:
                where = self.assign(f"getelementptr ptr, ptr %buffers, i64 {position}")
                args.append((buffers.index(buffer), f"ptr {self.assign(f'load ptr, ptr {where}')}"))
        ordered = [a for _, a in sorted(args)]
        for scalar in scalars:
            value = self._load_scalar(self.func.scalars.index(scalar), scalar)
            ordered.append(f"{value_type(scalar.dtype)} {value}")
        return ordered

    def begin_nest(self, nest: Stmt) -> tuple[list[Buffer], list[Var]]:
        """Names the parameters that a nest uses."""
        from_stmt = _uses(nest)
        buffers = [b for b in self.func.buffers if b in from_stmt[0]]
        scalars = [s for s in self.func.scalars if s in from_stmt[1]]
        self._param_names: dict[Buffer | Var, str] = {}
        for position, item in enumerate([*buffers, *scalars]):
            self._param_names[item] = f"p{position}"
        for b in buffers:
            self.pointers[b] = f"%{self._param_names[b]}"
        for s in scalars:
            self.values[s] = f"%{self._param_names[s]}"
        return buffers, scalars

    def param_name(self, item: Buffer | Var) -> str:
        return self._param_names[item]

    # -- statements ----------------------------------------------------------------------------------------------------

    def stmt(self, s: Stmt) -> None:
        self.memo = [{}]
        match s:
            case Seq():
                for part in s.stmts:
                    self.stmt(part)
            case Store() if s.mask is not None and max(s.value.lanes, *(i.lanes for i in s.indices)) == 1:
                self.branch(If(s.mask, s.with_fields(mask=None)))
            case Store():
                self.store(s)
            case For():
                self.loop(s, "0", self.expr(s.extent))
            case If():
                self.branch(s)
            case While():
                self.while_loop(s)
            case Let():
                self.values[s.var] = self.expr(s.value)
                lo, hi = self.analyzer.bounds(s.value) if s.value.dtype.is_int else (None, None)
                if s.var.dtype.is_int:
                    self.analyzer.bind(s.var, lo, hi if hi != lo else None)
                self.stmt(s.body)
            case Evaluate():
                self.expr(s.value)
            case Allocate():
                self.allocate(s.buffer)
                self.stmt(s.body)
            case _:
                raise TypeError(f"not a device statement: {type(s).__name__}")

    def allocate(self, buffer: Buffer) -> None:
        size = as_int(buffer.shape[0])
        assert size is not None, f"local buffer {buffer.name} has no constant size"
        name = self.fresh()
        self.allocas.append(f"  {name} = alloca [{max(size, 1)} x {memory_type(buffer.dtype)}], align 64")
        self.pointers[buffer] = name

    def range_loop(self, s: For) -> None:
        self.loop(s, "%range_begin", "%range_end", partial=True)

    def loop(self, s: For, begin: str, end: str, partial: bool = False) -> None:
        body, done = self.new_label("body"), self.new_label("done")
        before = self.block
        steps = as_int(s.extent)
        if steps is not None and steps > 0 and not partial:
            self.line(f"br label %{body}")
        else:
            test = self.assign(f"icmp slt i64 {begin}, {end}")
            self.line(f"br i1 {test}, label %{body}, label %{done}")
        index, following = self.fresh(), self.fresh()
        position = len(self.lines)
        self.label(body)
        self.values[s.var] = index
        self.cache.append({})
        saved = self.analyzer
        self.analyzer = within_loop(saved, s)
        self.stmt(s.body)
        self.analyzer = saved
        self.cache.pop()
        latch = self.block
        self.line(f"{following} = add nuw nsw i64 {index}, 1")
        again = self.assign(f"icmp slt i64 {following}, {end}")
        self.line(f"br i1 {again}, label %{body}, label %{done}")
        self.lines.insert(position + 1, f"  {index} = phi i64 [ {begin}, %{before} ], [ {following}, %{latch} ]")
        self.label(done)

    def branch(self, s: If) -> None:
        cond = self.expr(s.cond)
        then, otherwise, done = self.new_label("then"), self.new_label("else"), self.new_label("endif")
        self.line(f"br i1 {cond}, label %{then}, label %{otherwise if s.otherwise is not None else done}")
        saved = self.analyzer
        self.label(then)
        self.analyzer = saved.copy()
        self.analyzer.assume(s.cond)
        self.cache.append({})
        self.stmt(s.then)
        self.cache.pop()
        self.analyzer = saved
        self.line(f"br label %{done}")
        if s.otherwise is not None:
            self.label(otherwise)
            self.cache.append({})
            self.stmt(s.otherwise)
            self.cache.pop()
            self.line(f"br label %{done}")
        self.label(done)

    def while_loop(self, s: While) -> None:
        head, body, done = self.new_label("while"), self.new_label("body"), self.new_label("done")
        self.line(f"br label %{head}")
        self.label(head)
        self.cache.append({})
        cond = self.expr(s.cond)
        self.line(f"br i1 {cond}, label %{body}, label %{done}")
        self.label(body)
        self.cache.append({})
        self.stmt(s.body)
        self.cache.pop()
        self.cache.pop()
        self.line(f"br label %{head}")
        self.label(done)

    # -- memory --------------------------------------------------------------------------------------------------------

    def store(self, s: Store) -> None:
        index, t = s.indices[0], s.buffer.dtype
        lanes = max(index.lanes, s.value.lanes)
        mask = None
        if s.mask is not None:  # what masked lanes would load must not be touched
            mask = self.wide(s.mask, lanes)
            self.guards.append((mask, lanes))
        value = self.convert.to_memory(self.wide(s.value, lanes), t, lanes)
        pointer, contiguous = self.address(s.buffer, index)
        if mask is not None:
            self.guards.pop()
        kind = memory_type(t, lanes)
        if lanes == 1:
            self.line(f"store {kind} {value}, ptr {pointer}, align {t.itemsize}")
            return
        if contiguous:
            if mask is None:
                self.line(f"store {kind} {value}, ptr {pointer}, align {t.itemsize}")
            else:
                suffix = f"v{lanes}{_suffix(memory_type(t))}"
                self.module.math.declare(f"declare void @llvm.masked.store.{suffix}.p0({kind}, ptr, <{lanes} x i1>)")
                self.line(
                    f"call void @llvm.masked.store.{suffix}.p0({kind} {value}, ptr align {t.itemsize} {pointer}, <{lanes} x i1> {mask})"
                )
            return
        suffix = f"v{lanes}{_suffix(memory_type(t))}.v{lanes}p0"
        self.module.math.declare(f"declare void @llvm.masked.scatter.{suffix}({kind}, <{lanes} x ptr>, <{lanes} x i1>)")
        mask = mask or splat("i1", "true", lanes)
        self.line(
            f"call void @llvm.masked.scatter.{suffix}({kind} {value}, <{lanes} x ptr> align {t.itemsize} {pointer}, <{lanes} x i1> {mask})"
        )

    def address(self, buffer: Buffer, index: Expr) -> tuple[str, bool]:
        """The pointer of an access, and whether it is one pointer (scalar or contiguous) or a vector of them."""
        base, kind = self.pointers[buffer], memory_type(buffer.dtype)
        if index.lanes == 1:
            return self.offset(base, kind, self.expr(index)), True
        if isinstance(index, Ramp) and as_int(index.stride) == 1:
            return self.offset(base, kind, self.expr(index.base)), True
        value = self.expr(index)
        return self.assign(f"getelementptr inbounds {kind}, ptr {base}, <{index.lanes} x i64> {value}"), False

    def offset(self, base: str, kind: str, index: str) -> str:
        return base if index == "0" else self.assign(f"getelementptr inbounds {kind}, ptr {base}, i64 {index}")

    def load(self, e: Load) -> str:
        index, t, lanes = e.indices[0], e.buffer.dtype, e.lanes
        kind = memory_type(t, lanes)
        guard = self.guard(e)
        if lanes == 1:
            pointer, _ = self.address(e.buffer, index)
            if guard is not None:
                taken = guard[0] if guard[1] == 1 else self.any_lane(*guard)
                pointer = self.assign(f"select i1 {taken}, ptr {pointer}, ptr @everport_zeros")
            raw = self.assign(f"load {kind}, ptr {pointer}, align {t.itemsize}")
            return self.convert.from_memory(raw, t, 1)
        pointer, contiguous = self.address(e.buffer, index)
        if contiguous and guard is None:
            raw = self.assign(f"load {kind}, ptr {pointer}, align {t.itemsize}")
            return self.convert.from_memory(raw, t, lanes)
        mask = splat("i1", "true", lanes)
        if guard is not None:
            mask = guard[0] if guard[1] == lanes else self.splat_value(guard[0], "i1", lanes)
        if contiguous:
            suffix = f"v{lanes}{_suffix(memory_type(t))}"
            self.module.math.declare(f"declare {kind} @llvm.masked.load.{suffix}.p0(ptr, <{lanes} x i1>, {kind})")
            raw = self.assign(
                f"call {kind} @llvm.masked.load.{suffix}.p0(ptr align {t.itemsize} {pointer}, <{lanes} x i1> {mask}, {kind} zeroinitializer)"
            )
        else:
            suffix = f"v{lanes}{_suffix(memory_type(t))}.v{lanes}p0"
            self.module.math.declare(f"declare {kind} @llvm.masked.gather.{suffix}(<{lanes} x ptr>, <{lanes} x i1>, {kind})")
            raw = self.assign(
                f"call {kind} @llvm.masked.gather.{suffix}(<{lanes} x ptr> align {t.itemsize} {pointer}, <{lanes} x i1> {mask}, {kind} zeroinitializer)"
            )
        return self.convert.from_memory(raw, t, lanes)

    def guard(self, e: Load) -> tuple[str, int] | None:
        """The condition (value and lanes) under which a load inside a select counts; None where it is always in bounds."""
        if not self.guards:
            return None
        if self.inside(e.indices[0], e.buffer.shape[0]):
            return None
        lanes = max(n for _, n in self.guards)
        values = [v if n == lanes else self.splat_value(v, "i1", lanes) for v, n in self.guards]
        result = values[0]
        for value in values[1:]:
            result = self.assign(f"and {vector('i1', lanes)} {result}, {value}")
        return result, lanes

    def inside(self, index: Expr, size: Expr) -> bool:
        """True if every lane of an index is proved to be within 0 .. size."""
        first = last = index
        if isinstance(index, Ramp):
            stride = as_int(index.stride)
            if stride is None:
                return False
            first, last = index.base, index.base + stride * (index.lanes - 1)
            if stride < 0:
                first, last = last, first
        elif isinstance(index, Broadcast):
            first = last = index.a
        elif index.lanes > 1:
            return False
        prove = self.analyzer.can_prove
        return prove(Binary(">=", first, Const(0))) and prove(Binary("<", last, size))

    def any_lane(self, mask: str, lanes: int) -> str:
        self.module.math.declare(f"declare i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1>)")
        return self.assign(f"call i1 @llvm.vector.reduce.or.v{lanes}i1(<{lanes} x i1> {mask})")

    # -- expressions ---------------------------------------------------------------------------------------------------

    def wide(self, e: Expr, lanes: int) -> str:
        """An expression as a vector of `lanes` (a scalar is broadcast)."""
        value = self.expr(e)
        return value if e.lanes == lanes else self.splat_value(value, value_type(e.dtype), lanes)

    def splat_value(self, value: str, scalar: str, lanes: int) -> str:
        if lanes == 1:
            return value
        if not value.startswith("%"):
            return splat(scalar, value, lanes)
        one = self.assign(f"insertelement <{lanes} x {scalar}> poison, {scalar} {value}, i64 0")
        return self.assign(f"shufflevector <{lanes} x {scalar}> {one}, <{lanes} x {scalar}> poison, <{lanes} x i32> zeroinitializer")

    def expr(self, e: Expr) -> str:
        """The SSA value of an expression; pure index arithmetic is written once a block."""
        if isinstance(e, Const):
            return literal(e.value, e.dtype)
        if isinstance(e, Var):
            return self.values[e]
        scopes = self.cache if self.reusable(e) else self.memo
        for scope in reversed(scopes):
            if e in scope:
                return scope[e]
        value = self._expr(e)
        scopes[-1][e] = value
        return value

    def reusable(self, e: Expr) -> bool:
        """Index arithmetic: pure and cheap to keep."""
        return e.dtype is i64 and isinstance(e, (Binary, Ramp)) and not self.has_load(e)

    def has_load(self, e: Expr) -> bool:
        known = self.module.loads
        if e not in known:
            for node in post_order(e):
                if isinstance(node, Expr) and node not in known:
                    known[node] = isinstance(node, Load) or any(isinstance(c, Expr) and known[c] for c in children(node))
        return known[e]

    def guarded(self, e: Expr, cond: str, lanes: int) -> str:
        """The value of `e` where its loads count only under `cond`."""
        if not self.has_load(e):
            return self.expr(e)
        self.guards.append((cond, lanes))
        self.memo.append({})
        self.cache.append({})  # the facts of the guard may shorten index arithmetic
        value = self.expr(e)
        self.cache.pop()
        self.memo.pop()
        self.guards.pop()
        return value

    def negated(self, cond: str, lanes: int) -> str:
        return self.assign(f"xor {vector('i1', lanes)} {cond}, {splat('i1', 'true', lanes)}")

    def _expr(self, e: Expr) -> str:
        match e:
            case Binary():
                return self.binary(e)
            case Unary():
                return self.unary(e)
            case Select():
                return self.select(e)
            case Cast():
                return self.convert.cast(self.expr(e.a), e.a.dtype, e.dtype, e.lanes)
            case Call():
                return self.call(e)
            case Load():
                return self.load(e)
            case Ramp():
                return self.ramp(e)
            case Broadcast():
                return self.splat_value(self.expr(e.a), value_type(e.dtype), e.lanes)
        raise TypeError(f"not an expression: {type(e).__name__}")

    def ramp(self, e: Ramp) -> str:
        kind = value_type(e.dtype, e.lanes)
        scalar = value_type(e.dtype)
        base = self.splat_value(self.expr(e.base), scalar, e.lanes)
        stride = as_int(e.stride)
        if stride is not None:
            steps = "<" + ", ".join(f"{scalar} {stride * k}" for k in range(e.lanes)) + ">"
        else:
            counts = "<" + ", ".join(f"{scalar} {k}" for k in range(e.lanes)) + ">"
            steps = self.assign(f"mul {kind} {self.splat_value(self.expr(e.stride), scalar, e.lanes)}, {counts}")
        return self.assign(f"add {kind} {base}, {steps}")

    def select(self, e: Select) -> str:
        kind = value_type(e.dtype, e.lanes)
        cond, lanes = self.expr(e.cond), e.cond.lanes
        saved = self.analyzer
        if lanes == 1 and self.has_load(e.a):
            self.analyzer = saved.copy()
            self.analyzer.assume(e.cond)
        a = self.guarded(e.a, cond, lanes)
        self.analyzer = saved
        b = self.guarded(e.b, self.negated(cond, lanes), lanes) if self.has_load(e.b) else self.expr(e.b)
        return self.assign(f"select {value_type(boolean, e.cond.lanes)} {cond}, {kind} {a}, {kind} {b}")

    def unary(self, e: Unary) -> str:
        value, kind = self.expr(e.a), value_type(e.dtype, e.lanes)
        if e.op == "not":
            return self.assign(f"xor {kind} {value}, {splat('i1', 'true', e.lanes)}")
        if e.op == "~":
            return self.assign(f"xor {kind} {value}, {splat(value_type(e.dtype), '-1', e.lanes)}")
        if e.dtype.is_float:
            return self.convert.rounded(self.assign(f"fneg {kind} {value}"), e.dtype, e.lanes)
        zero = splat(value_type(e.dtype), "0", e.lanes)
        return self.convert.narrowed(self.assign(f"sub {kind} {zero}, {value}"), e.dtype, e.lanes)

    def binary(self, e: Binary) -> str:
        t, lanes = e.a.dtype, e.lanes
        if e.op in ("and", "or") and self.has_load(e.b):  # the right side counts only where the left does not decide
            first = self.expr(e.a)
            second = self.guarded(e.b, first if e.op == "and" else self.negated(first, lanes), lanes)
            return self.assign(f"{e.op} {value_type(t, lanes)} {first}, {second}")
        a, b = self.expr(e.a), self.expr(e.b)
        kind = value_type(t, lanes)
        if e.op in _ORDERED:
            if t.is_float:
                return self.assign(f"fcmp {_ORDERED[e.op]} {kind} {a}, {b}")
            table = _SIGNED if t.kind == "int" else _UNSIGNED
            return self.assign(f"icmp {table[e.op]} {kind} {a}, {b}")
        if e.op in ("and", "or"):
            return self.assign(f"{e.op} {kind} {a}, {b}")
        if t.is_float:
            return self.float_binary(e.op, a, b, t, lanes)
        if t.is_bool and e.op in ("min", "max"):
            return self.assign(f"{'and' if e.op == 'min' else 'or'} {kind} {a}, {b}")
        return self.convert.narrowed(self.int_binary(e, a, b, kind), t, lanes)

    def float_binary(self, op: str, a: str, b: str, t: DType, lanes: int) -> str:
        kind = value_type(t, lanes)
        if op in _FLOAT_OPS:
            flags = "contract " if op in ("+", "-", "*") and t.name in ("f32", "f64") else ""
            value = self.assign(f"{_FLOAT_OPS[op]} {flags}{kind} {a}, {b}")
            return self.convert.rounded(value, t, lanes)
        if op in ("min", "max"):
            # NaN from either side; which zero wins is left open (nsz).
            full = f"llvm.{op}imum.{'' if lanes == 1 else f'v{lanes}'}{_suffix(value_type(t))}"
            self.module.math.declare(f"declare {kind} @{full}({kind}, {kind})")
            return self.assign(f"call nsz {kind} @{full}({kind} {a}, {kind} {b})")
        raise TypeError(f"operator {op!r} is not for floats")

    def int_binary(self, e: Binary, a: str, b: str, kind: str) -> str:
        op, t, lanes = e.op, e.a.dtype, e.lanes
        signed = t.kind == "int"
        scalar = value_type(t)
        if op in _INT_OPS:
            return self.assign(f"{_INT_OPS[op]} {kind} {a}, {b}")
        if op in ("min", "max"):
            compare = ("s" if signed else "u") + ("lt" if op == "min" else "gt")
            test = self.assign(f"icmp {compare} {kind} {a}, {b}")
            return self.assign(f"select {vector('i1', lanes)} {test}, {kind} {a}, {kind} {b}")
        if op in ("<<", ">>"):
            return self.shift(op, a, b, kind, scalar, t, lanes)
        if op in ("//", "%", "tdiv", "tmod"):
            return self.divide(e, a, b, kind, scalar, signed)
        raise TypeError(f"operator {op!r} is not for integers")

    def shift(self, op: str, a: str, b: str, kind: str, scalar: str, t: DType, lanes: int) -> str:
        """Shifts by the width or more (or by a negative amount) shift everything out: 0, or the sign for signed right shifts."""
        if op == ">>" and t.kind == "int":
            most = splat(scalar, str(t.bits - 1), lanes)
            inside = self.assign(f"icmp ult {kind} {b}, {most}")
            amount = self.assign(f"select {vector('i1', lanes)} {inside}, {kind} {b}, {kind} {most}")
            return self.assign(f"ashr {kind} {a}, {amount}")
        width = splat(scalar, str(t.bits), lanes)
        fits = self.assign(f"icmp ult {kind} {b}, {width}")
        amount = self.assign(f"select {vector('i1', lanes)} {fits}, {kind} {b}, {kind} {splat(scalar, '0', lanes)}")
        name = "shl" if op == "<<" else "lshr"
        value = self.assign(f"{name} {kind} {a}, {amount}")
        return self.assign(f"select {vector('i1', lanes)} {fits}, {kind} {value}, {kind} {splat(scalar, '0', lanes)}")

    def divide(self, e: Binary, a: str, b: str, kind: str, scalar: str, signed: bool) -> str:
        op, lanes = e.op, e.lanes
        divisor = as_int(e.b.a if isinstance(e.b, Broadcast) else e.b)
        want_mod = op in ("%", "tmod")
        nonnegative = not signed or (self.bounds_low(e.a) and (divisor or 0) > 0)
        if divisor is not None and divisor > 0 and nonnegative:
            if divisor & (divisor - 1) == 0:
                if want_mod:
                    return self.assign(f"and {kind} {a}, {splat(scalar, str(divisor - 1), lanes)}")
                return self.assign(f"lshr {kind} {a}, {splat(scalar, str(divisor.bit_length() - 1), lanes)}")
            return self.assign(f"{'urem' if want_mod else 'udiv'} {kind} {a}, {b}")
        zero, one = splat(scalar, "0", lanes), splat(scalar, "1", lanes)
        safe = b
        isn_zero = None
        if divisor is None or divisor == 0:
            isn_zero = self.assign(f"icmp ne {kind} {b}, {zero}")
            safe = self.assign(f"select {vector('i1', lanes)} {isn_zero}, {kind} {b}, {kind} {one}")
        if not signed:
            value = self.assign(f"{'urem' if want_mod else 'udiv'} {kind} {a}, {safe}")
        else:
            value = self.signed_divide(op, a, safe, kind, zero, one, lanes, scalar, e.a.dtype)
        if isn_zero is None:
            return value
        return self.assign(f"select {vector('i1', lanes)} {isn_zero}, {kind} {value}, {kind} {zero}")

    def signed_divide(
        self, op: str, a: str, b: str, kind: str, zero: str, one: str, lanes: int, scalar: str, t: DType
    ) -> str:
        """Division that never traps: the smallest value by -1 wraps."""
        minus = self.assign(f"icmp eq {kind} {b}, {splat(scalar, '-1', lanes)}")
        safe = self.assign(f"select {vector('i1', lanes)} {minus}, {kind} {one}, {kind} {b}")
        quotient = self.assign(f"sdiv {kind} {a}, {safe}")
        negated = self.assign(f"sub {kind} {zero}, {a}")
        quotient = self.assign(f"select {vector('i1', lanes)} {minus}, {kind} {negated}, {kind} {quotient}")
        rest = self.assign(f"sub {kind} {a}, {self.assign(f'mul {kind} {quotient}, {b}')}")
        if op in ("tdiv", "tmod"):
            return quotient if op == "tdiv" else rest
        left = self.assign(f"icmp ne {kind} {rest}, {zero}")
        signs = self.assign(f"icmp slt {kind} {self.assign(f'xor {kind} {rest}, {b}')}, {zero}")
        adjust = self.assign(f"and {vector('i1', lanes)} {left}, {signs}")
        if op == "//":
            lower = self.assign(f"sub {kind} {quotient}, {one}")
            return self.assign(f"select {vector('i1', lanes)} {adjust}, {kind} {lower}, {kind} {quotient}")
        upper = self.assign(f"add {kind} {rest}, {b}")
        return self.assign(f"select {vector('i1', lanes)} {adjust}, {kind} {upper}, {kind} {rest}")

    def bounds_low(self, e: Expr) -> bool:
        if isinstance(e, Ramp):
            step = as_int(e.stride)
            return step is not None and step >= 0 and self.bounds_low(e.base)
        if isinstance(e, Broadcast):
            return self.bounds_low(e.a)
        if e.lanes > 1:
            return False
        return (self.analyzer.bounds(e)[0] if e.dtype is i64 else -1) not in (None, -1) and (
            self.analyzer.bounds(e)[0] or 0
        ) >= 0

    def call(self, e: Call) -> str:
        args = [self.wide(a, e.lanes) for a in e.args]
        emit: Callable[[str], str] = self.assign
        source = e.args[0].dtype
        value = self.module.math.call(e.name, args, source, e.lanes, emit)
        return self.convert.rounded(value, e.dtype, e.lanes) if e.dtype.is_float else value


def _suffix(scalar: str) -> str:
    return {"half": "f16", "float": "f32", "double": "f64"}.get(scalar, scalar)


def _uses(nest: Stmt) -> tuple[set[Buffer], set[Var]]:
    buffers: set[Buffer] = set()
    for node in post_order(nest):
        if isinstance(node, (Load, Store)):
            buffers.add(node.buffer)
    return buffers, set(free_vars(nest))
