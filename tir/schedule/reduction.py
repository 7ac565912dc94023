"""decompose_reduction and rfactor."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.tir.buffer import Buffer, Region, point_region
from everport.tir.build import reduce_identity
from everport.tir.expr import Binary, Expr, Load, Var, as_int, binary, substitute
from everport.tir.func import PrimFunc
from everport.tir.schedule.cache import top_of
from everport.tir.schedule.scope import (
    block_path,
    find_block,
    loops_in,
    replace,
    single_store,
    unique_block_name,
    user_in,
    uses,
    with_reads,
)
from everport.tir.stmt import TRUE, Block, For, If, IterVar, Stmt, Store, nest, seq

KINDS = {"+": "sum", "*": "prod", "max": "max", "min": "min", "and": "and", "or": "or"}


def _conjuncts(e: Expr) -> list[Expr]:
    if isinstance(e, Binary) and e.op == "and":
        return [*_conjuncts(e.a), *_conjuncts(e.b)]
    return [e]


def decompose_reduction(func: PrimFunc, name: str, loop: Var) -> tuple[PrimFunc, str]:
    """for k: [init if k == 0] C += ...  ->  C = init (over the spatial loops below); for k: C += ...

    `loop` is around the block, and no reduce loop of the block is outside it. Gives the name of the init block.
    """
    block = find_block(func, name)
    if block.init is None:
        raise ScheduleError(f"decompose_reduction: block {name!r} has no init")
    path = block_path(func, name)
    loops = loops_in(path)
    if loop not in [f.var for f in loops]:
        raise ScheduleError(f"decompose_reduction: loop {loop.name!r} is not around block {name!r}")
    position = [f.var for f in loops].index(loop)
    reduces = [b for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "reduce"]
    for f in loops[:position]:
        if any(uses(b, [f.var]) for b in reduces):
            raise ScheduleError(f"decompose_reduction: reduce loop {f.var.name!r} is outside loop {loop.name!r}")
    below = loops[position:]
    for f in below:
        if as_int(f.extent) != 1 and not any(uses(b, [f.var]) for b in block.bindings):
            raise ScheduleError(f"decompose_reduction: loop {f.var.name!r} repeats block {name!r}, init and all")
    spatial = [(i, b) for i, b in zip(block.iters, block.bindings, strict=True) if i.kind == "spatial"]
    needed = [f for f in below if any(uses(b, [f.var]) for _, b in spatial)]
    fresh = {f.var: Var(f.var.name) for f in needed}
    iters = tuple(IterVar(Var(i.var.name), i.extent) for i, _ in spatial)
    renamed: dict[Var, Expr] = {i.var: n.var for (i, _), n in zip(spatial, iters, strict=True)}
    moved: dict[Var, Expr] = dict(fresh)
    predicate: Expr = TRUE
    dropped = [f.var for f in below if f not in needed]
    for part in _conjuncts(block.predicate):
        if as_int(part) != 1 and not uses(part, dropped):
            predicate = binary("and", predicate, substitute(part, moved))
    init_name = unique_block_name(func, f"{name}_init")
    init = Block(
        init_name,
        iters,
        tuple(substitute(b, moved) for _, b in spatial),
        (),
        tuple(substitute(w, renamed) for w in block.writes),
        substitute(block.init, renamed),
        None,
        predicate,
        span=block.span,
    )
    init_nest: Stmt = init
    for f in reversed(needed):
        kind = f.kind if f.kind in ("vectorized", "unrolled") else "serial"
        init_nest = For(fresh[f.var], substitute(f.extent, moved), init_nest, kind)
    target = below[0]
    # Without its init the block reads what it writes.
    update = with_reads(block.with_fields(init=None))
    within = replace(func, {id(block): update})
    new_target = next(s for s in loops_in(block_path(within, name)) if s.var is target.var)
    return replace(within, {id(new_target): seq(init_nest, new_target)}), init_name


def rfactor(func: PrimFunc, name: str, loop: Var, axis: int = 0) -> tuple[PrimFunc, str]:
    """B[i] = sum over (ko, ki)  ->  B_rf[ki, i] = sum over ko;  B[i] = sum over ki of B_rf[ki, i].

    `loop` (ki) is a reduce loop of a block that still has its init and accumulates one store with +, *, min, max, and, or; all
    its loops must be serial. The new dimension stands at `axis`. Gives the name of the factored block (which keeps the
    loops); the old name goes to the final block: after the nest, or, if that uses the result, after the reduce loops.
    """
    block = find_block(func, name)
    store = single_store(block)
    if store is None or not isinstance(block.init, Store) or not isinstance(store.value, Binary):
        raise ScheduleError(f"rfactor: block {name!r} is not one accumulation with an init")
    update = store.value
    if update.op not in KINDS or not (isinstance(update.a, Load) and update.a.buffer is store.buffer):
        raise ScheduleError(f"rfactor: block {name!r} does not accumulate with one of {', '.join(KINDS)}")
    identity = reduce_identity(KINDS[update.op], store.buffer.dtype)
    if block.init.value is not identity:
        raise ScheduleError(f"rfactor: the init of block {name!r} is not the identity of {update.op!r}")
    path = block_path(func, name)
    loops = loops_in(path)
    target = next((f for f in loops if f.var is loop), None)
    if target is None:
        raise ScheduleError(f"rfactor: loop {loop.name!r} is not around block {name!r}")
    pairs = list(zip(block.iters, block.bindings, strict=True))
    if any(uses(b, [loop]) for i, b in pairs if i.kind != "reduce") or not any(uses(b, [loop]) for i, b in pairs if i.kind == "reduce"):
        raise ScheduleError(f"rfactor: loop {loop.name!r} is no reduce loop of block {name!r}")
    if not 0 <= axis <= store.buffer.rank:
        raise ScheduleError(f"rfactor: axis {axis} is not within 0 .. {store.buffer.rank}")
    if any(f.kind != "serial" for f in loops):
        raise ScheduleError(f"rfactor: a loop around block {name!r} is not serial")
    stays = user_in(top_of(func, name), store.buffer, readers=True)
    reducing = [k for k, f in enumerate(loops) if any(uses(b, [f.var]) for i, b in pairs if i.kind == "reduce")]
    first = loops[reducing[0]]
    if stays is not None and any(uses(b, [f.var]) for f in loops[reducing[0] :] for i, b in pairs if i.kind == "spatial"):
        raise ScheduleError(
            f"rfactor: block {stays.name!r} reads {store.buffer.name!r} within the nest, and a spatial loop of {name!r} is "
            f"inside its reduce loop {first.var.name!r}"
        )
    shape = (*store.buffer.shape[:axis], target.extent, *store.buffer.shape[axis:])
    factored = Buffer(f"{store.buffer.name}_rf", shape, store.buffer.dtype)
    lane = IterVar(Var(f"v_{loop.name}"), target.extent)
    reduce_loops = [f for f in loops if f.var is not loop and any(uses(b, [f.var]) for i, b in pairs if i.kind == "reduce")]
    rest = [IterVar(Var(f"v_{f.var.name}"), f.extent, "reduce") for f in reduce_loops]
    by_loop: dict[Var, Expr] = {f.var: i.var for f, i in zip(reduce_loops, rest, strict=True)}
    by_loop[loop] = lane.var
    spatial = [(i, b) for i, b in pairs if i.kind == "spatial"]
    values = {i.var: substitute(b, by_loop) for i, b in pairs if i.kind == "reduce"}
    outer = [f.var for f in loops if f.var is not loop and f not in reduce_loops]
    if any(uses(v, outer) for v in values.values()):
        raise ScheduleError(f"rfactor: a reduce iterator of {name!r} depends on a spatial loop")
    place = (*store.indices[:axis], lane.var, *store.indices[axis:])
    term = substitute(update.b, values)
    # Where the split overshoots, the term is not to count.
    guards = [c for c in _conjuncts(block.predicate) if as_int(c) != 1]
    inside = [c for c in guards if uses(c, [*by_loop])]
    if any(uses(c, outer) for c in inside):
        raise ScheduleError(f"rfactor: the predicate of block {name!r} mixes spatial and reduce loops")
    predicate: Expr = TRUE
    for c in guards:
        predicate = binary("and", predicate, c)
    rf_name = unique_block_name(func, f"{name}_rf")
    accumulated = Store(factored, place, Binary(update.op, Load(factored, place), term))
    if inside:
        from_cond = substitute(inside[0], by_loop)
        for c in inside[1:]:
            from_cond = binary("and", from_cond, substitute(c, by_loop))
        body: Stmt = If(from_cond, accumulated)
        predicate = TRUE
        for c in guards:
            if c not in inside:
                predicate = binary("and", predicate, c)
    else:
        body = accumulated
    rf = with_reads(
        Block(
            rf_name,
            (*(i for i, _ in spatial), lane, *rest),
            (*(b for _, b in spatial), loop, *(f.var for f in reduce_loops)),
            (),
            (point_region(factored, place),),
            body,
            Store(factored, place, identity),
            predicate,
            span=block.span,
        )
    )
    final_iters = [IterVar(Var(i.var.name), i.extent) for i, _ in spatial]
    final_lane = IterVar(Var("r0"), target.extent, "reduce")
    renamed: dict[Var, Expr] = {i.var: n.var for (i, _), n in zip(spatial, final_iters, strict=True)}
    out = tuple(substitute(e, renamed) for e in store.indices)
    source = (*out[:axis], final_lane.var, *out[axis:])
    lane_loop = (Var(f"i{len(final_iters)}"), final_lane.extent)
    final_loops = [(Var(f"i{k}"), i.extent) for k, i in enumerate(final_iters)] if stays is None else []
    places = tuple(v for v, _ in final_loops) if stays is None else tuple(b for _, b in spatial)
    final_loops.append(lane_loop)
    final = Block(
        name,
        (*final_iters, final_lane),
        (*places, lane_loop[0]),
        (point_region(factored, source),),
        (Region(store.buffer, point_region(store.buffer, out).ranges),),
        Store(store.buffer, out, Binary(update.op, Load(store.buffer, out), Load(factored, source))),
        Store(store.buffer, out, identity),
        TRUE if stays is None else predicate,
        annotations=block.annotations,
        span=block.span,
    )
    within = replace(func, {id(block): rf})
    top: Stmt = top_of(within, rf_name)
    if stays is not None:
        top = next(s for s in loops_in(block_path(within, rf_name)) if s.var is first.var)
    result = replace(within, {id(top): seq(top, nest(final_loops, final))})
    root = result.root
    return result.with_fields(body=root.with_fields(allocs=(*root.allocs, factored))), rf_name

