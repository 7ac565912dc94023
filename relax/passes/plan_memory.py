"""plan_memory: every intermediate gets a place in one arena, by liveness, with symbolic sizes.

Runs when PrimFuncs are lowered (their workspaces are known). Places of constant size are packed by offset, the largest
first; places of symbolic size take over a dead place whose size is provably the same or larger, or a new one behind.
The result is the function attribute "plan": (arena bytes, ((name, offset, bytes), ...)); a workspace of the call that binds
`x` is named `x#0`, `x#1`, ...
"""

from __future__ import annotations

from dataclasses import dataclass, field

from everport.ir.module import IRModule
from everport.ir.passes import Pass
from everport.relax.expr import Binding, Call, CallTIR, Function, RelaxExpr, TupleGetItem, Var
from everport.relax.passes.legalize import VIEWS
from everport.relax.passes.rewrite import map_functions, uses_of
from everport.relax.struct_info import TensorInfo
from everport.tir.arith import Analyzer
from everport.tir.expr import Const, Expr, as_int, eq, ge, substitute
from everport.tir.expr import Var as TirVar
from everport.tir.func import PrimFunc

ALIGN = 64


@dataclass(slots=True)
class Place:
    """A piece of memory: its name, size in bytes, first and last binding that needs it, and where it was put."""

    name: str
    size: Expr
    first: int
    last: int
    offset: Expr = field(default_factory=lambda: Const(0))


@dataclass(frozen=True)
class PlanMemory(Pass):
    """See the module's text."""

    name = "plan_memory"

    def __call__(self, module: IRModule) -> IRModule:
        return map_functions(module, lambda f: _planned(f, module))


def function_analyzer(f: Function) -> Analyzer:
    """An analyzer that knows the ranges of the function's symbols."""
    analyzer = Analyzer()
    for symbol, lo, hi, divisor in f.attr("dim_ranges", ()):
        analyzer.bind(symbol, lo, hi)
        if divisor > 1:
            analyzer.assume(eq(symbol % divisor, 0))
    return analyzer


def storage_roots(f: Function) -> dict[Var, RelaxExpr]:
    """For each variable the value whose memory it shares: a view shares its argument's."""
    roots: dict[Var, RelaxExpr] = {}
    for binding in f.bindings:
        value = binding.value
        if isinstance(value, Var):
            roots[binding.var] = roots.get(value, value)
        elif isinstance(value, Call) and value.op in VIEWS:
            source = value.args[0]
            roots[binding.var] = roots.get(source, source) if isinstance(source, Var) else source
    return roots


def nbytes(info: TensorInfo) -> Expr:
    """Size in bytes of a dense tensor."""
    return info.numel() * info.dtype.itemsize


def _planned(f: Function, module: IRModule) -> Function:
    analyzer = function_analyzer(f)
    roots = storage_roots(f)
    places: dict[str, Place] = {}
    owner: dict[RelaxExpr, str] = {}
    fields: dict[Var, list[Var]] = {}
    for binding in f.bindings:
        if isinstance(binding.value, TupleGetItem) and isinstance(binding.value.value, Var):
            fields.setdefault(binding.value.value, []).append(binding.var)
    for index, binding in enumerate(f.bindings):
        value = binding.value
        if isinstance(binding, Binding) and isinstance(value, CallTIR):
            infos = [binding.var.info] if isinstance(binding.var.info, TensorInfo) else list(binding.var.info.fields)  # type: ignore[attr-defined]
            for position, info in enumerate(infos):
                name = binding.var.name if len(infos) == 1 else f"{binding.var.name}.{position}"
                places[name] = Place(name, _aligned(nbytes(info), analyzer), index, index)
                if len(infos) == 1:
                    owner[binding.var] = name
            if len(infos) > 1:
                for v in fields.get(binding.var, []):
                    position = next(b.value.index for b in f.bindings if b.var is v)  # type: ignore[union-attr]
                    owner[v] = f"{binding.var.name}.{position}"
            func: PrimFunc = module[value.func]
            mapping: dict[TirVar, Expr] = dict(zip(func.scalars, value.ints, strict=True))
            workspaces = func.buffers[len(func.inputs) + func.num_outputs :]
            for k, buffer in enumerate(workspaces):
                size = substitute(buffer.numel() * buffer.dtype.itemsize, mapping)
                name = f"{binding.var.name}#{k}"
                places[name] = Place(name, _aligned(size, analyzer), index, index)
        for v in uses_of(value):
            root = roots.get(v, v)
            if root in owner:
                places[owner[root]].last = max(places[owner[root]].last, index)
    # A result lives in the caller's memory, not in the arena.
    for result in f.results:
        root = roots.get(result, result) if isinstance(result, Var) else result
        if root in owner:
            places.pop(owner[root], None)
    arena = _pack(list(places.values()), analyzer)
    plan = (arena, tuple((p.name, p.offset, p.size) for p in places.values()))
    return f.with_attr(plan=plan)


def _aligned(size: Expr, analyzer: Analyzer) -> Expr:
    return analyzer.simplify((size + (ALIGN - 1)) // ALIGN * ALIGN)


def _pack(places: list[Place], analyzer: Analyzer) -> Expr:
    fixed = [p for p in places if as_int(p.size) is not None]
    top = _pack_fixed(fixed)
    arena: Expr = Const(top)
    slots: list[tuple[Expr, Expr, int]] = []  # offset, size, last use
    for place in sorted((p for p in places if as_int(p.size) is None), key=lambda p: p.first):
        for k, (offset, size, last) in enumerate(slots):
            if last < place.first and (size is place.size or analyzer.can_prove(ge(size, place.size))):
                place.offset = offset
                slots[k] = (offset, size, place.last)
                break
        else:
            place.offset = arena
            slots.append((arena, place.size, place.last))
            arena = analyzer.simplify(arena + place.size)
    return arena


def _pack_fixed(places: list[Place]) -> int:
    """Largest first, each at the lowest offset that is free during its life."""
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    top = 0
    for place in sorted(places, key=lambda p: (-(as_int(p.size) or 0), p.first)):
        size = as_int(place.size) or 0
        offset = 0
        for start, stop, first, last in sorted(placed):
            if last < place.first or first > place.last:
                continue
            if start >= offset + size:
                break
            offset = max(offset, stop)
        place.offset = Const(offset)
        placed.append((offset, offset + size, place.first, place.last))
        top = max(top, offset + size)
    return top
