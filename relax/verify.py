"""The verifier of Relax: a table of rules that every module keeps after every pass."""

from __future__ import annotations

from collections.abc import Iterator

from everport.ir.errors import CompileError
from everport.ir.module import IRModule
from everport.ir.rules import CheckRule, check_rules
from everport.relax.builder import infer_call
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
from everport.relax.op import OPS, InferContext
from everport.relax.op.base import fields_of_info
from everport.relax.struct_info import StructInfo, TensorInfo, TupleInfo
from everport.tir.expr import Var as TirVar
from everport.tir.expr import free_vars, substitute
from everport.tir.func import PrimFunc
from everport.tir.verify import verify as verify_primfunc

Breach = tuple[str, object]


def _context(f: Function) -> InferContext:
    ctx = InferContext()
    for symbol, lo, hi, _ in f.attr("dim_ranges", ()):
        ctx.analyzer.bind(symbol, lo, hi)
    return ctx


def _same(a: StructInfo, b: StructInfo, ctx: InferContext) -> bool:
    if isinstance(a, TensorInfo) and isinstance(b, TensorInfo):
        return a.dtype == b.dtype and a.rank == b.rank and all(ctx.equal(x, y) for x, y in zip(a.shape, b.shape, strict=True))
    if isinstance(a, TupleInfo) and isinstance(b, TupleInfo):
        return len(a.fields) == len(b.fields) and all(_same(x, y, ctx) for x, y in zip(a.fields, b.fields, strict=True))
    return type(a) is type(b)


def _args(value: RelaxExpr) -> tuple[RelaxExpr, ...]:
    match value:
        case Call() | CallTIR():
            return value.args
        case Tuple():
            return value.fields
        case TupleGetItem():
            return (value.value,)
    return (value,) if isinstance(value, Var) else ()


def _normal_form(f: Function) -> Iterator[Breach]:
    for b in f.bindings:
        for a in _args(b.value):
            if not isinstance(a, (Var, Constant)):
                yield f"an argument of {b.var} is neither a variable nor a constant: {a}", b


def _defined(f: Function) -> Iterator[Breach]:
    known: set[Var] = set(f.params)
    names = {p.name for p in f.params}
    for b in f.bindings:
        for a in _args(b.value):
            if isinstance(a, Var) and a not in known:
                yield f"{a} is used before it is bound", b
        if b.var in known:
            yield f"{b.var} is bound twice", b
        if b.var.name in names:
            yield f"the name {b.var.name!r} is taken twice", b
        names.add(b.var.name)
        known.add(b.var)
    for r in f.results:
        if isinstance(r, Var) and r not in known:
            yield f"the result {r} is not bound", f


def _operators(f: Function) -> Iterator[Breach]:
    ctx = _context(f)
    for b in f.bindings:
        if not isinstance(b.value, Call):
            continue
        if b.value.op not in OPS:
            yield f"there is no operator {b.value.op!r}", b
            continue
        try:
            found = infer_call(ctx, b.value.op, b.value.args, b.value.attrs)
        except CompileError as error:
            yield error.message, b
            continue
        if not _same(found, b.var.info, ctx):
            yield f"{b.var} is said to be {b.var.info}, inference says {found}", b


def _infos(f: Function) -> Iterator[Breach]:
    ctx = _context(f)
    for b in f.bindings:
        if isinstance(b, Binding) and not _same(b.value.info, b.var.info, ctx):
            yield f"{b.var} is {b.var.info}, its value is {b.value.info}", b


def _symbols(f: Function) -> Iterator[Breach]:
    known: set[TirVar] = {v for p in f.params for v in free_vars(p.info)}
    for b in f.bindings:
        if isinstance(b, MatchCast):
            known.update(b.defines)
        for s in free_vars(b.var.info):
            if s not in known:
                yield f"the symbol {s} of {b.var} is not defined", b


FUNCTION_RULES: tuple[CheckRule[Function], ...] = (
    CheckRule("normal form", _normal_form),
    CheckRule("defined before use", _defined),
    CheckRule("operators", _operators),
    CheckRule("struct info", _infos),
    CheckRule("symbols", _symbols),
)


def _calls(module: IRModule) -> Iterator[Breach]:
    for f in module.of_type(Function).values():
        ctx = _context(f)
        for b in f.bindings:
            if not isinstance(b.value, CallTIR):
                continue
            call = b.value
            func = module.functions.get(call.func)
            if not isinstance(func, PrimFunc):
                yield f"{b.var} calls {call.func!r}, which is no PrimFunc of the module", b
                continue
            outputs = fields_of_info(call.info)
            if len(call.args) != len(func.inputs) or len(call.ints) != len(func.scalars) or len(outputs) != func.num_outputs:
                yield f"{b.var} calls {call.func!r} with the wrong number of arguments", b
                continue
            mapping = dict(zip(func.scalars, call.ints, strict=True))
            device = func.attr("stage") == "device"
            given = [*(fields_of_info(a.info)[0] for a in call.args), *outputs]
            for buffer, info in zip((*func.inputs, *func.outputs), given, strict=True):
                shape = tuple(substitute(s, mapping) for s in buffer.shape)
                want = TensorInfo((info.numel(),), info.dtype) if device else info
                if not _same(TensorInfo(shape, buffer.dtype), want, ctx):
                    yield f"{b.var}: {call.func}'s buffer {buffer.name!r} does not fit {info}", b


MODULE_RULES: tuple[CheckRule[IRModule], ...] = (CheckRule("call_tir signatures", _calls),)


def verify_module(module: IRModule) -> None:
    """Checks every function of a module; a VerifyError lists the breaches."""
    for name, f in module.functions.items():
        if isinstance(f, Function):
            check_rules(f, FUNCTION_RULES, f"function {name!r}")
        elif isinstance(f, PrimFunc):
            verify_primfunc(f)
    check_rules(module, MODULE_RULES, "the module")
