"""blockize and tensorize: a nest as one block, and one block as a tensor intrinsic."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.ir.node import Node, pre_order, rewrite
from everport.tir.arith import eval_region
from everport.tir.buffer import Buffer, Range, Region
from everport.tir.expr import Const, Expr, Load, Var, as_int, refold, substitute
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import (
    analyzer_for,
    loop_path,
    loops_in,
    outer_blocks,
    replace,
    unique_block_name,
    uses,
)
from everport.tir.schedule.tensor_intrin import TENSOR_INTRINS
from everport.tir.stmt import TRUE, Block, For, IterVar, Stmt, Store


def blockize(func: PrimFunc, loop: Var) -> tuple[PrimFunc, str]:
    """The loops from `loop` inwards become part of a new outer block with iterators for what is outside.

    The nest must be perfect around one block without predicate, whose bindings are outer * extent + inner. Its init must have
    been decomposed. Gives the new block's name.
    """
    path = loop_path(func, loop)
    target = path[-1]
    inner: list[For] = []
    current: Stmt = target
    while isinstance(current, For):
        inner.append(current)
        current = current.body
    if not isinstance(current, Block):
        raise ScheduleError(f"blockize: under loop {loop.name!r} stands more than one block")
    block = current
    if as_int(block.predicate) != 1 or block.init is not None:
        raise ScheduleError(f"blockize: block {block.name!r} has a predicate or an init")
    analyzer = analyzer_for(func, [*loops_in(path[:-1]), *inner])
    inside = [f.var for f in inner]
    outer_iters: list[IterVar] = []
    outer_bindings: list[Expr] = []
    new_bindings: list[Expr] = []
    for it, binding in zip(block.iters, block.bindings, strict=True):
        zeros: dict[Var, Expr] = {v: Const(0) for v in inside}
        base = analyzer.simplify(substitute(binding, zeros))
        part = analyzer.simplify(binding - base)
        if uses(base, inside):
            raise ScheduleError(f"blockize: the binding {binding} of {it.var.name!r} is not outer plus inner")
        high = analyzer.symbolic_bounds(part, inside)[1]
        extent = as_int(analyzer.simplify(high + 1)) if high is not None else None
        if extent is None:
            raise ScheduleError(f"blockize: the inner extent of {it.var.name!r} is no constant")
        if extent == 1:
            outer_iters.append(IterVar(Var(it.var.name), it.extent, it.kind))
            outer_bindings.append(base)
            new_bindings.append(outer_iters[-1].var + part)
            continue
        quotient = analyzer.simplify(base // extent)
        if not analyzer.can_prove_equal(quotient * extent, base):
            raise ScheduleError(f"blockize: {base} is no multiple of the inner extent {extent} of {it.var.name!r}")
        count = analyzer.simplify(it.extent // extent)
        outer_iters.append(IterVar(Var(f"{it.var.name}_o"), count, it.kind))
        outer_bindings.append(quotient)
        new_bindings.append(analyzer.simplify(outer_iters[-1].var * extent + part))
    moved = block.with_fields(bindings=tuple(new_bindings))
    body: Stmt = moved
    for f in reversed(inner):
        body = f.with_fields(body=body)
    at = {i.var: b for i, b in zip(block.iters, new_bindings, strict=True)}

    def covered(region: Region) -> Region:
        ranges = tuple(Range(substitute(r.min, at), substitute(r.extent, at)) for r in region.ranges)
        return eval_region(Region(region.buffer, ranges), inside, analyzer)

    name = unique_block_name(func, f"{block.name}_o")
    outer = Block(
        name,
        tuple(outer_iters),
        tuple(outer_bindings),
        tuple(covered(r) for r in block.reads),
        tuple(covered(w) for w in block.writes),
        body,
    )
    return replace(func, {id(target): outer}), name


def tensorize(func: PrimFunc, loop: Var, intrin: str) -> PrimFunc:
    """Replaces the nest at `loop` by a tensor intrinsic that computes the same.

    The nest must have the loops, extents and store of the intrinsic's description, on parts of buffers that are contiguous in
    the same last dimensions. The result is a block around the implementation's body.
    """
    if intrin not in TENSOR_INTRINS:
        raise ScheduleError(f"there is no tensor intrinsic {intrin!r}", hint=f"intrinsics: {', '.join(TENSOR_INTRINS)}")
    row = TENSOR_INTRINS[intrin]
    wanted = outer_blocks(row.description.root.body)[0]
    func, name = blockize(func, loop)
    outer = next(b for b in outer_blocks(func.root.body) if b.name == name)
    loops: list[For] = []
    current: Stmt = outer.body
    while isinstance(current, For):
        loops.append(current)
        current = current.body
    assert isinstance(current, Block)
    if [as_int(f.extent) for f in loops] != [as_int(i.extent) for i in wanted.iters]:
        raise ScheduleError(f"tensorize: the loops do not have the extents of {intrin!r}")
    values = {i.var: b for i, b in zip(current.iters, current.bindings, strict=True)}
    body = substitute(current.body, values)
    names: dict[Var, Expr] = {i.var: f.var for i, f in zip(wanted.iters, loops, strict=True)}
    description = substitute(wanted.body, names)
    analyzer = analyzer_for(func, loops)
    places: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
    if not (isinstance(body, Store) and isinstance(description, Store)) or not _match(
        body, description, [f.var for f in loops], places, analyzer
    ):
        raise ScheduleError(f"tensorize: the nest does not compute what {intrin!r} does")
    implementation = outer_blocks(row.implementation.root.body)[0]
    described = {b.name: b for b in row.description.buffers}
    made: dict[Buffer, tuple[Buffer, tuple[Expr, ...]]] = {}
    for buffer in row.implementation.buffers:
        made[buffer] = places[described[buffer.name]]
    fresh: dict[Var, Expr] = {n.var: Var(n.var.name) for n in pre_order(implementation.body) if isinstance(n, For)}

    def change(node: Node) -> Node | None:
        if isinstance(node, Var):
            return fresh.get(node)
        if isinstance(node, Load) and node.buffer in made:
            buffer, base = made[node.buffer]
            return Load(buffer, _at(base, node.indices))
        if isinstance(node, Store) and node.buffer in made:
            buffer, base = made[node.buffer]
            return node.with_fields(buffer=buffer, indices=_at(base, node.indices))
        return refold(node)

    written = rewrite(implementation.body, change, pre=lambda n: n if isinstance(n, Buffer) else None)
    return replace(func, {id(outer): outer.with_fields(body=written, predicate=TRUE)})


def _at(base: tuple[Expr, ...], indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
    lead = len(base) - len(indices)
    return (*base[:lead], *(b + i for b, i in zip(base[lead:], indices, strict=True)))


def _match(a: Store, b: Store, loops: list[Var], places: dict, analyzer) -> bool:  # noqa: ANN001
    """a (on real buffers) equals b (on the description's), up to where the buffers' parts begin."""

    def access(real: Buffer, at: tuple[Expr, ...], described: Buffer, want: tuple[Expr, ...]) -> bool:
        zeros: dict[Var, Expr] = {v: Const(0) for v in loops}
        lead = len(at) - len(want)
        if lead < 0:
            return False
        base = tuple(analyzer.simplify(substitute(e, zeros)) for e in at)
        steps = [analyzer.simplify(e - b0) for e, b0 in zip(at, base, strict=True)]
        if any(as_int(s) != 0 for s in steps[:lead]):
            return False
        if not all(analyzer.can_prove_equal(s, w) for s, w in zip(steps[lead:], want, strict=True)):
            return False
        known = places.setdefault(described, (real, base))
        return known[0] is real and all(analyzer.can_prove_equal(p, q) for p, q in zip(known[1], base, strict=True))

    def same(x: Expr, y: Expr) -> bool:
        if isinstance(x, Load) and isinstance(y, Load):
            return access(x.buffer, x.indices, y.buffer, y.indices)
        if type(x) is not type(y) or x.dtype != y.dtype:
            return False
        mine, theirs = [getattr(x, n) for n in x.FIELDS], [getattr(y, n) for n in y.FIELDS]
        return all(same(p, q) if isinstance(p, Expr) else p == q for p, q in zip(mine, theirs, strict=True))

    return access(a.buffer, a.indices, b.buffer, b.indices) and same(a.value, b.value)
