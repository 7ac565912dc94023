"""Primitives on loops: split, fuse, reorder, fission, parallel, vectorize, unroll, bind, annotate, loop_partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everport.ir.errors import ScheduleError
from everport.ir.node import Node, rewrite
from everport.tir.buffer import Buffer, Region
from everport.tir.expr import Const, Expr, Load, Var, as_int, ceildiv, const, lt
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import (
    analyzer_for,
    blocks_in,
    find_block,
    find_loop,
    loop_path,
    loops_in,
    outer_blocks,
    rebind,
    replace,
    sub_statements,
    unique_block_name,
    uses,
)
from everport.tir.stmt import Block, For, IterVar, Seq, Stmt, Store, seq, with_annotation


def split(func: PrimFunc, loop: Var, factors: Sequence[int | Expr | None]) -> tuple[PrimFunc, tuple[Var, ...]]:
    """for i in n  ->  for i0 in ceil(n / f1): for i1 in f1 (outermost factor first; one may be None: worked out).

    Where the factors' product may exceed n, the blocks get the predicate i0 * f1 + i1 < n. Legal on any loop but thread loops.
    """
    path = loop_path(func, loop)
    target = path[-1]
    assert isinstance(target, For)
    if target.kind == "thread":
        raise ScheduleError(f"loop {loop.name!r} is bound to a thread axis and cannot be split")
    if sum(f is None for f in factors) > 1 or not factors:
        raise ScheduleError("split takes factors of which one may be None")
    known: Expr = Const(1)
    for f in factors:
        if f is not None:
            if as_int(f) is not None and int(as_int(f) or 0) < 1:
                raise ScheduleError(f"split factors are positive, not {f}")
            known = known * const(f)
    analyzer = analyzer_for(func, loops_in(path))
    sizes = [analyzer.simplify(ceildiv(target.extent, known)) if f is None else const(f) for f in factors]
    variables = tuple(Var(f"{loop.name}_{k}") for k in range(len(sizes)))
    total: Expr = Const(0)
    product: Expr = Const(1)
    for v, size in zip(variables, sizes, strict=True):
        total = total * size + v
        product = product * size
        analyzer.bind_extent(v, size)
    if None not in factors and not analyzer.can_prove(_at_least(product, target.extent)):
        raise ScheduleError(f"the factors of split cover {product} of the {target.extent} steps of {loop.name!r}")
    total = analyzer.simplify(total)
    exact = analyzer.can_prove(lt(total, target.extent))
    inside = analyzer_for(func, loops_in(path[:-1]))
    for v, size in zip(variables, sizes, strict=True):
        inside.bind_extent(v, size)
    if not exact:
        inside.assume(lt(total, target.extent))
    body = rebind(target.body, {loop: total}, inside, None if exact else lt(total, target.extent))
    for position in range(len(sizes) - 1, -1, -1):
        kind = target.kind if position == 0 else "serial"
        notes = target.annotations if position == 0 else ()
        body = For(variables[position], sizes[position], body, kind, None, notes, target.span)
    return replace(func, {id(target): body}), variables


def _at_least(a: Expr, b: Expr) -> Expr:
    return lt(b, a + 1)


def fuse(func: PrimFunc, loops: Sequence[Var]) -> tuple[PrimFunc, Var]:
    """for i in n: for j in m  ->  for f in n * m (i = f // m, j = f % m). The loops must be directly nested, outermost first."""
    chain = _nested_chain(func, loops, "fuse")
    analyzer = analyzer_for(func, loops_in(loop_path(func, loops[0])[:-1]))
    extent: Expr = Const(1)
    for f in chain:
        if uses(f.extent, loops):
            raise ScheduleError(f"the extent of {f.var.name!r} depends on a loop it would be fused with")
        extent = extent * f.extent
    extent = analyzer.simplify(extent)
    fused = Var("_".join(v.name for v in loops)[:40])
    analyzer.bind_extent(fused, extent)
    mapping: dict[Var, Expr] = {}
    rest: Expr = fused
    for f in reversed(chain):
        last = f is chain[0]
        mapping[f.var] = analyzer.simplify(rest if last else rest % f.extent)
        rest = rest if last else rest // f.extent
    body = rebind(chain[-1].body, mapping, analyzer)
    new = For(fused, extent, body, chain[0].kind, None, chain[0].annotations, chain[0].span)
    return replace(func, {id(chain[0]): new}), fused


def _nested_chain(func: PrimFunc, loops: Sequence[Var], what: str) -> list[For]:
    if len(loops) < 1:
        raise ScheduleError(f"{what} takes at least one loop")
    current: Stmt = find_loop(func, loops[0])
    chain: list[For] = []
    for v in loops:
        if not isinstance(current, For) or current.var is not v:
            raise ScheduleError(f"{what}: loop {v.name!r} is not directly inside {chain[-1].var.name!r}")
        chain.append(current)
        current = current.body
    return chain


def reorder(func: PrimFunc, loops: Sequence[Var]) -> PrimFunc:
    """Permutes loops of one chain: they take each other's places in the given order; loops between them stay.

    The chain from the outermost to the innermost named loop must be perfect (nothing but loops), every block below must have
    spatial and reduce iterators only, and no extent may depend on a loop that moves inside it.
    """
    if len(set(loops)) != len(loops):
        raise ScheduleError("reorder names a loop twice")
    paths = {v: loop_path(func, v) for v in loops}
    innermost = max(paths.values(), key=len)
    on_path = [s for s in innermost if isinstance(s, For) and s.var in paths]
    if len(on_path) != len(loops):
        raise ScheduleError("reorder: the loops are not on one path")
    start = innermost.index(on_path[0])
    chain = innermost[start:]
    for s in chain:
        if not isinstance(s, For):
            raise ScheduleError(f"reorder: between {on_path[0].var.name!r} and {on_path[-1].var.name!r} stand other statements")
    for block in outer_blocks(chain[-1]):
        if any(i.kind == "opaque" for i in block.iters) or not block.iters:
            raise ScheduleError(f"reorder: block {block.name!r} has an order of its own (opaque iterators)")
    order = iter(loops)
    by_var = {s.var: s for s in chain if isinstance(s, For)}
    new_chain: list[For] = []
    for s in chain:
        assert isinstance(s, For)
        new_chain.append(by_var[next(order)] if s.var in paths else s)
    seen: set[Var] = set()
    for s in reversed(new_chain):
        seen.add(s.var)
        if uses(s.extent, seen):
            raise ScheduleError(f"reorder: the extent of {s.var.name!r} depends on a loop that would be inside it")
    body: Stmt = chain[-1].body  # type: ignore[attr-defined]
    for s in reversed(new_chain):
        body = s.with_fields(body=body)
    return replace(func, {id(chain[0]): body})


def _check_parallel(func: PrimFunc, loop: Var, what: str) -> For:
    target = find_loop(func, loop)
    inside = outer_blocks(target)
    most = analyzer_for(func, loops_in(loop_path(func, loop)[:-1])).bounds(target.extent)[1]
    single = most is not None and most <= 1
    for block in inside:
        used = False
        for it, binding in zip(block.iters, block.bindings, strict=True):
            if uses(binding, [loop]):
                used = True
                if it.kind != "spatial":
                    raise ScheduleError(
                        f"{what}: loop {loop.name!r} drives the {it.kind} iterator {it.var.name!r} of block {block.name!r}"
                    )
        if not used and not single and not _private_writes(func, block, target):
            raise ScheduleError(
                f"{what}: every step of {loop.name!r} would write the same part of what block {block.name!r} writes"
            )
    return target


def _private_writes(func: PrimFunc, block: Block, loop: For) -> bool:
    """True if all that the block writes is used inside the loop only."""
    names = {b.name for b in outer_blocks(loop)}
    for w in block.writes:
        if not any(b is w.buffer for b in func.root.allocs):
            return False
        for other in outer_blocks(func.root.body):
            if other.name not in names and any(r.buffer is w.buffer for r in (*other.reads, *other.writes)):
                return False
    return True


def parallel(func: PrimFunc, loop: Var) -> PrimFunc:
    """Marks a loop parallel. It may drive spatial iterators only, and its steps must write different places."""
    target = _check_parallel(func, loop, "parallel")
    return replace(func, {id(target): target.with_fields(kind="parallel")})


def vectorize(func: PrimFunc, loop: Var) -> PrimFunc:
    """Marks a loop vectorized. Its extent must be a constant of at most 64; else as `parallel`."""
    target = _check_parallel(func, loop, "vectorize")
    extent = as_int(target.extent)
    if extent is None or extent > 64:
        raise ScheduleError(f"vectorize: the extent of {loop.name!r} is {target.extent}; it must be a constant of at most 64")
    return replace(func, {id(target): target.with_fields(kind="vectorized")})


def unroll(func: PrimFunc, loop: Var) -> PrimFunc:
    """Marks a loop unrolled. Its extent must be a constant of at most 256."""
    target = find_loop(func, loop)
    extent = as_int(target.extent)
    if extent is None or extent > 256:
        raise ScheduleError(f"unroll: the extent of {loop.name!r} is {target.extent}; it must be a constant of at most 256")
    return replace(func, {id(target): target.with_fields(kind="unrolled")})


THREAD_AXES = tuple(f"{a}.{d}" for a in ("blockIdx", "threadIdx") for d in "xyz")


def bind(func: PrimFunc, loop: Var, thread: str) -> PrimFunc:
    """Binds a loop to a thread axis (blockIdx.x ... threadIdx.z). Conditions as for `parallel`; an axis is used once on a path."""
    if thread not in THREAD_AXES:
        raise ScheduleError(f"there is no thread axis {thread!r}", hint=f"axes: {', '.join(THREAD_AXES)}")
    target = _check_parallel(func, loop, "bind")
    around = [*loops_in(loop_path(func, loop)[:-1]), *_loops_below(target)]
    if any(f.thread == thread for f in around):
        raise ScheduleError(f"bind: {thread} is bound already around or inside {loop.name!r}")
    return replace(func, {id(target): target.with_fields(kind="thread", thread=thread)})


def _loops_below(loop: For) -> list[For]:
    found: list[For] = []
    stack: list[Stmt] = [loop.body]
    while stack:
        s = stack.pop()
        if isinstance(s, For):
            found.append(s)
            stack.append(s.body)
        elif isinstance(s, Seq):
            stack.extend(s.stmts)
    return found


def annotate(func: PrimFunc, target: Var | str, name: str, value: Any) -> PrimFunc:
    """Attaches a plain value to a loop or a block."""
    found: For | Block = find_loop(func, target) if isinstance(target, Var) else find_block(func, target)
    return replace(func, {id(found): found.with_fields(annotations=with_annotation(found.annotations, name, value))})


def loop_partition(func: PrimFunc, loop: Var, at: Expr | int) -> tuple[PrimFunc, tuple[Var, Var]]:
    """for i in n  ->  for i in at; for j in n - at (i = at + j): the tail becomes a nest of its own, with blocks of new names.

    0 <= at <= n must be provable.
    """
    path = loop_path(func, loop)
    target = path[-1]
    assert isinstance(target, For)
    analyzer = analyzer_for(func, loops_in(path[:-1]))
    cut = const(at)
    if not (analyzer.can_prove(lt(Const(-1), cut)) and analyzer.can_prove(lt(cut, target.extent + 1))):
        raise ScheduleError(f"loop_partition: {cut} is not provably within 0 .. {target.extent}")
    first = For(loop, analyzer.simplify(cut), target.body, target.kind, None, target.annotations, target.span)
    copied, copies = copied_statement(func, target)
    rest = Var(f"{loop.name}_tail")
    inside = analyzer_for(func, loops_in(path[:-1]))
    extent = analyzer.simplify(target.extent - cut)
    inside.bind_extent(rest, extent)
    mapping: dict[Var, Expr] = {loop: cut + rest}
    second = For(rest, extent, rebind(copied, mapping, inside), target.kind, None, target.annotations, target.span)
    func = replace(func, {id(target): seq(first, second)})
    root = func.root
    return func.with_fields(body=root.with_fields(allocs=(*root.allocs, *copies))), (loop, rest)


def fission(func: PrimFunc, loop: Var) -> tuple[PrimFunc, tuple[Var, ...]]:
    """for i: for j: {A; B}  ->  {for i: for j: A}; {for i: for j: B}: the chain of loops from `loop` down to a sequence is
    written once for each part. Gives the loops of the last part, outermost first.

    Every loop of the chain must be serial and, in each block below, drive spatial iterators only or none of the block's writes
    twice: each element that a part makes is made in one step, so that later parts may wait for all of them.
    """
    current: Stmt = find_loop(func, loop)
    chain: list[For] = []
    while isinstance(current, For):
        chain.append(current)
        current = current.body
    if not isinstance(current, Seq):
        raise ScheduleError(f"fission: under loop {loop.name!r} stands one statement only")
    for f in chain:
        if f.kind != "serial":
            raise ScheduleError(f"fission: loop {f.var.name!r} is {f.kind}")
        _check_parallel(func, f.var, "fission")
    parts: list[Stmt] = []
    variables: tuple[Var, ...] = tuple(f.var for f in chain)
    for position, part in enumerate(current.stmts):
        if position:
            variables = tuple(Var(f.var.name) for f in chain)
        mapping: dict[Var, Expr] = {f.var: v for f, v in zip(chain, variables, strict=True)}
        body = rebind(part, mapping, analyzer_for(func, [])) if position else part
        for f, v in zip(reversed(chain), reversed(variables), strict=True):
            body = f.with_fields(var=v, body=body)
        parts.append(body)
    return replace(func, {id(chain[0]): seq(parts)}), variables


def copied_statement(func: PrimFunc, loop: For) -> tuple[Stmt, list[Buffer]]:
    """A copy of a loop's body with new loop variables, iterators, block names, and intermediates where all of a buffer's uses
    are in the loop; and those new buffers."""
    s = loop.body
    fresh: dict[Var, Var] = {}
    names: dict[str, str] = {}
    for block in blocks_in(s):
        names[block.name] = unique_block_name(func, f"{block.name}_tail")
    inside = {b.name for b in blocks_in(s)}
    used_outside = {
        r.buffer for b in blocks_in(func.root.body) if b.name not in inside for r in (*b.reads, *b.writes)
    }
    used_inside = {r.buffer for b in blocks_in(s) for r in (*b.reads, *b.writes)}
    taken = {b.name for b in func.root.allocs}
    buffers: dict[Buffer, Buffer] = {}
    for b in func.root.allocs:
        if b in used_inside and b not in used_outside:
            name, number = f"{b.name}_tail", 1
            while name in taken:
                name, number = f"{b.name}_tail_{number}", number + 1
            taken.add(name)
            buffers[b] = Buffer(name, b.shape, b.dtype, b.scope, b.align)

    def change(node: Node) -> Node | None:
        if isinstance(node, Var):
            return fresh.get(node)
        if isinstance(node, Load) and node.buffer in buffers:
            return Load(buffers[node.buffer], node.indices)
        if isinstance(node, (Store, Region)) and node.buffer in buffers:
            return node.with_fields(buffer=buffers[node.buffer])
        if isinstance(node, Block):
            return node.with_fields(name=names[node.name])
        return None

    for node in _definitions(s):
        fresh[node.var] = Var(node.var.name, node.var.dtype)
    return rewrite(s, change, pre=lambda n: n if isinstance(n, Buffer) else None), list(buffers.values())


def _definitions(s: Stmt) -> list[For | IterVar]:
    from_nodes: list[For | IterVar] = []
    stack: list[Stmt] = [s]
    while stack:
        current = stack.pop()
        if isinstance(current, For):
            from_nodes.append(current)
        if isinstance(current, Block):
            from_nodes.extend(current.iters)
        stack.extend(sub_statements(current))
    return from_nodes

