"""fuse_ops: calls are grouped by kind, and each group becomes one PrimFunc of several blocks.

Every group has one result that leaves it. A producer joins its only consumer's group if
- it is elementwise, broadcast or injective, and the consumer is too, or is a reduction; or
- it is a reduction or output-fusible (convolution, matmul), and the consumer is elementwise or broadcast on the same shape.
A group holds one heavy operator at most, so nothing heavy is computed twice, and a path that leaves a group never returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from everport.ir.module import IRModule
from everport.ir.node import Node, pre_order
from everport.ir.passes import Pass
from everport.relax.expr import Binding, CallTIR, Function, MatchCast, RelaxExpr, Var
from everport.relax.op.base import FusionKind
from everport.relax.passes.legalize import FunctionTable
from everport.relax.passes.rewrite import uses_of, with_bindings
from everport.relax.struct_info import TensorInfo
from everport.tir.arith import Analyzer
from everport.tir.buffer import Buffer
from everport.tir.expr import Expr, free_vars
from everport.tir.expr import Var as TirVar
from everport.tir.func import PrimFunc
from everport.tir.instantiate import instantiate, merge_blocks
from everport.tir.stmt import For, IterVar, Let

LIGHT = (FusionKind.ELEMENTWISE, FusionKind.BROADCAST, FusionKind.INJECTIVE)
POINTWISE = (FusionKind.ELEMENTWISE, FusionKind.BROADCAST)
HEAVY = (FusionKind.REDUCTION, FusionKind.OUTPUT_FUSIBLE)


@dataclass(slots=True)
class _Group:
    """Calls in order; the last one's variable leaves the group."""

    members: list[Binding]
    kinds: set[str] = field(default_factory=set)
    inputs: set[Var] = field(default_factory=set)

    @property
    def heavy(self) -> bool:
        return any(k in HEAVY for k in self.kinds)


@dataclass(frozen=True)
class FuseOps(Pass):
    """`max_members` bounds a group's calls, `max_inputs` its arguments."""

    name = "fuse_ops"
    max_members: int = 24
    max_inputs: int = 24

    def __call__(self, module: IRModule) -> IRModule:
        functions = FunctionTable(module)
        changes: dict[str, Node] = {}
        for name, f in module.of_type(Function).items():
            changes[name] = self._fused(f, module, functions)
        return module.with_functions({**changes, **functions.added})

    def _fused(self, f: Function, module: IRModule, functions: FunctionTable) -> Function:
        uses: dict[Var, int] = {}
        for binding in f.bindings:
            for v in set(uses_of(binding.value)):
                uses[v] = uses.get(v, 0) + 1
        for v in set(uses_of(f.result)):
            uses[v] = uses.get(v, 0) + 2  # a result has to leave its group
        groups: dict[Var, _Group] = {}
        analyzer = Analyzer()
        for binding in f.bindings:
            if not isinstance(binding, Binding) or not isinstance(binding.value, CallTIR):
                continue
            kind = module[binding.value.func].attr("kind", FusionKind.OPAQUE)
            group = _Group([binding], {kind}, set(uses_of(binding.value)))
            for v in dict.fromkeys(uses_of(binding.value)):
                producer = groups.get(v)
                if producer is not None and uses[v] == 1 and self._joins(producer, group, binding, analyzer, module):
                    group.members = [*producer.members, *group.members]
                    group.kinds |= producer.kinds
                    group.inputs = (group.inputs | producer.inputs) - {v}
                    del groups[v]
            groups[binding.var] = group
        bindings: list[Binding | MatchCast] = []
        inner = {m.var for g in groups.values() for m in g.members[:-1]}
        for binding in f.bindings:
            if binding.var in inner:
                continue
            group_or_none = groups.get(binding.var)
            if group_or_none is None or len(group_or_none.members) == 1:
                bindings.append(binding)
                continue
            members = _topological(group_or_none.members)
            bindings.append(binding.with_fields(value=_merged(members, module, functions)))
        return with_bindings(f, bindings)

    def _joins(
        self, producer: _Group, group: _Group, consumer: Binding, analyzer: Analyzer, module: IRModule
    ) -> bool:
        last = producer.members[-1]
        if not isinstance(last.var.info, TensorInfo) or not isinstance(consumer.value, CallTIR):
            return False
        if len(producer.members) + len(group.members) > self.max_members:
            return False
        if len(producer.inputs | group.inputs) > self.max_inputs:
            return False
        kind = module[consumer.value.func].attr("kind", FusionKind.OPAQUE)
        if not producer.heavy:
            return all(k in LIGHT for k in producer.kinds) and (kind in LIGHT or kind == FusionKind.REDUCTION)
        if group.heavy or kind not in POINTWISE or not isinstance(consumer.var.info, TensorInfo):
            return False
        a, b = last.var.info.shape, consumer.var.info.shape
        return len(a) == len(b) and all(analyzer.can_prove_equal(x, y) for x, y in zip(a, b, strict=True))


def _topological(members: list[Binding]) -> list[Binding]:
    """Members with producers first."""
    inside = {m.var: m for m in members}
    done: dict[Var, Binding] = {}
    stack = [(m, False) for m in reversed(members)]
    while stack:
        member, ready = stack.pop()
        if member.var in done:
            continue
        if ready:
            done[member.var] = member
            continue
        stack.append((member, True))
        stack.extend((inside[v], False) for v in uses_of(member.value) if v in inside and v not in done)
    return list(done.values())


def _merged(members: list[Binding], module: IRModule, functions: FunctionTable) -> CallTIR:
    inside: dict[Var, Buffer] = {}
    params: dict[RelaxExpr, Buffer] = {}
    parts = []
    allocs: list[Buffer] = []
    names: list[str] = []
    for member in members:
        call = member.value
        assert isinstance(call, CallTIR)
        func: PrimFunc = module[call.func]
        names.append(func.name.rstrip("0123456789_"))
        scalars: dict[TirVar, Expr] = dict(zip(func.scalars, call.ints, strict=True))
        buffers: dict[Buffer, Buffer] = {}
        for buffer, arg in zip(func.inputs, call.args, strict=True):
            if isinstance(arg, Var) and arg in inside:
                buffers[buffer] = inside[arg]
                continue
            if arg not in params:
                info = arg.info
                assert isinstance(info, TensorInfo)
                params[arg] = Buffer(f"p{len(params)}", info.shape, info.dtype)
            buffers[buffer] = params[arg]
        info = member.var.info
        assert isinstance(info, TensorInfo)
        made = Buffer(f"{func.outputs[0].name}", info.shape, info.dtype)
        buffers[func.outputs[0]] = made
        inside[member.var] = made
        if member is not members[-1]:
            allocs.append(made)
        parts.append(instantiate(func, buffers, scalars))
    root = merge_blocks("root", parts)
    root = root.with_fields(allocs=(*root.allocs, *allocs))
    output = inside[members[-1].var]
    buffers_in_order = (*params.values(), output)
    shapes = [s for b in buffers_in_order for s in b.shape]
    free = _free(root)
    symbols = list(dict.fromkeys([*free_vars(shapes), *(v for v in free_vars(root) if v in free)]))
    kinds = {module[m.value.func].attr("kind", FusionKind.OPAQUE) for m in members}  # type: ignore[union-attr]
    kind = next((k for k in (*HEAVY, FusionKind.INJECTIVE, FusionKind.BROADCAST) if k in kinds), FusionKind.ELEMENTWISE)
    name = "_".join(["fused", *names[:5]]) + (f"_and_{len(names) - 5}" if len(names) > 5 else "")
    func = PrimFunc(name, (*buffers_in_order, *symbols), root, (("kind", str(kind)), ("num_outputs", 1)))
    return CallTIR(functions.add(func), tuple(params), tuple(symbols), members[-1].var.info)


def _free(root: Node) -> set[TirVar]:
    """Variables of a body that no loop, iterator or let defines."""
    nodes = list(pre_order(root))
    defined = {n.var for n in nodes if isinstance(n, (For, Let, IterVar))}
    return {n for n in nodes if isinstance(n, TirVar)} - defined
