"""cache_read, cache_write and set_scope."""

from __future__ import annotations

from everport.ir.errors import ScheduleError
from everport.ir.node import Node, rewrite
from everport.tir.buffer import SCOPES, Buffer, Region, point_region
from everport.tir.expr import Load, Var, refold
from everport.tir.func import PrimFunc
from everport.tir.schedule.scope import (
    block_path,
    check_nest,
    find_block,
    is_intermediate,
    producers_of,
    replace,
    unique_block_name,
    with_reads,
)
from everport.tir.stmt import Block, IterVar, Seq, Stmt, Store, nest, seq


def _swap(node: Stmt, old: Buffer, new: Buffer) -> Stmt:
    """Every use of one buffer as another of the same shape."""

    def change(n: Node) -> Node | None:
        if isinstance(n, Load) and n.buffer is old:
            return Load(new, n.indices)
        if isinstance(n, (Store, Region)) and n.buffer is old:
            return n.with_fields(buffer=new)
        return refold(n)

    return rewrite(node, change, pre=lambda n: n if isinstance(n, Buffer) else None)


def _copy(func: PrimFunc, name: str, source: Buffer, target: Buffer) -> tuple[Stmt, str]:
    iters = tuple(IterVar(Var(f"v{k}"), d) for k, d in enumerate(source.shape))
    loops = [(Var(f"i{k}"), d) for k, d in enumerate(source.shape)]
    at = tuple(i.var for i in iters)
    unique = unique_block_name(func, name)
    block = Block(
        unique,
        iters,
        tuple(v for v, _ in loops),
        (point_region(source, at),),
        (point_region(target, at),),
        Store(target, at, source[at] if at else Load(source, ())),
    )
    return nest(loops, block), unique


def top_of(func: PrimFunc, name: str) -> Stmt:
    """The statement directly under the root that holds a block."""
    path = block_path(func, name)
    for position, s in enumerate(path):
        if s is func.body:
            below = path[position + 1]
            return path[position + 2] if isinstance(below, Seq) else below
    raise AssertionError("a path starts at the root")


def _check_scope(scope: str) -> None:
    if scope not in SCOPES:
        raise ScheduleError(f"there is no scope {scope!r}", hint=f"scopes: {', '.join(SCOPES)}")


def _with_alloc(func: PrimFunc, buffer: Buffer) -> PrimFunc:
    root = func.root
    return func.with_fields(body=root.with_fields(allocs=(*root.allocs, buffer)))


def cache_write(func: PrimFunc, name: str, scope: str) -> tuple[PrimFunc, str]:
    """Block writes B  ->  block writes B_cache (in `scope`), and a new block copies B_cache to B after the nest.

    The block must be the only writer of B. Gives the name of the copying block.
    """
    _check_scope(scope)
    block = find_block(func, name)
    if len(block.writes) != 1:
        raise ScheduleError(f"cache_write: block {name!r} writes {len(block.writes)} buffers")
    buffer = block.writes[0].buffer
    if len(producers_of(func, buffer)) != 1:
        raise ScheduleError(f"cache_write: {buffer.name!r} is written by several blocks")
    check_nest(top_of(func, name), buffer, "cache_write", readers=True)
    cached = Buffer(f"{buffer.name}_{scope}", buffer.shape, buffer.dtype, scope)
    swapped = _swap(block, buffer, cached)
    copy, copy_name = _copy(func, f"{name}_{scope}", cached, buffer)
    within = replace(func, {id(block): swapped})
    new_top = top_of(within, name)
    func = replace(within, {id(new_top): seq(new_top, copy)})
    return _with_alloc(func, cached), copy_name


def cache_read(func: PrimFunc, name: str, buffer_name: str, scope: str) -> tuple[PrimFunc, str]:
    """Block reads A  ->  a new block copies A to A_cache (in `scope`) before the nest, and the block reads A_cache.

    Gives the name of the copying block.
    """
    _check_scope(scope)
    block = find_block(func, name)
    found = [r.buffer for r in block.reads if r.buffer.name == buffer_name]
    if not found:
        names = ", ".join(dict.fromkeys(r.buffer.name for r in block.reads))
        raise ScheduleError(f"cache_read: block {name!r} does not read {buffer_name!r}", hint=f"it reads: {names}")
    buffer = found[0]
    check_nest(top_of(func, name), buffer, "cache_read", readers=False)
    cached = Buffer(f"{buffer.name}_{scope}", buffer.shape, buffer.dtype, scope)
    copy, copy_name = _copy(func, f"{buffer.name}_{scope}", buffer, cached)
    swapped = with_reads(_swap(block, buffer, cached))  # type: ignore[arg-type]
    func = replace(func, {id(block): swapped})
    top = top_of(func, name)
    return _with_alloc(replace(func, {id(top): seq(copy, top)}), cached), copy_name


def set_scope(func: PrimFunc, buffer_name: str, scope: str) -> PrimFunc:
    """Moves an intermediate buffer to another scope."""
    _check_scope(scope)
    found = [b for b in func.root.allocs if b.name == buffer_name]
    if not found:
        names = ", ".join(b.name for b in func.root.allocs)
        raise ScheduleError(f"set_scope: {buffer_name!r} is no intermediate buffer", hint=f"intermediates: {names or 'none'}")
    buffer = found[0]
    assert is_intermediate(func, buffer)
    moved = Buffer(buffer.name, buffer.shape, buffer.dtype, scope, buffer.align)
    root = _swap(func.root, buffer, moved)
    assert isinstance(root, Block)
    allocs = tuple(moved if b is buffer else b for b in root.allocs)
    return func.with_fields(body=root.with_fields(allocs=allocs))
