"""Where intermediates live: compaction to the region in use, workspaces for the rest, and flat indices."""

from __future__ import annotations

from dataclasses import dataclass, field

from everport.ir.node import Node, children, post_order, rewrite
from everport.tir.arith import Analyzer, eval_region, region_union
from everport.tir.buffer import Buffer, Region, point_region
from everport.tir.expr import Const, Expr, Load, Var, as_int
from everport.tir.func import PrimFunc
from everport.tir.lower.blocks import shape_analyzer
from everport.tir.stmt import Allocate, For, Let, Stmt, Store

STACK_LIMIT = 256 * 1024  # bytes of one local buffer; larger ones become workspaces


@dataclass(slots=True)
class _Access:
    """One access: the chain of statements above it (outermost first) and its indices."""

    path: tuple[Stmt, ...]
    indices: tuple[Expr, ...]


@dataclass(slots=True)
class _Placement:
    buffer: Buffer
    target: Stmt | None = None  # the statement whose body the buffer lives in; None: the whole function
    new: Buffer | None = None
    offsets: tuple[Expr, ...] = field(default=())


def place_buffers(func: PrimFunc) -> PrimFunc:
    """Allocates each intermediate in the innermost loop that holds all its accesses, shrunk to the region used there.

    Buffers whose accesses spread over several nests, or whose region there has no constant size (or a large one), become
    workspaces: extra buffer parameters after the outputs (attribute num_workspaces), in their full shape.
    """
    wanted: dict[Buffer, list[_Access]] = {}
    body = func.body
    while isinstance(body, Allocate):
        wanted[body.buffer] = []
        body = body.body
    if not wanted:
        return func
    _collect(body, (), wanted)
    base = shape_analyzer(func)
    workspaces: list[Buffer] = []
    placements: dict[Buffer, _Placement] = {}
    by_target: dict[int, list[_Placement]] = {}
    for buffer, accesses in wanted.items():
        if not accesses:
            continue
        placement = _place(buffer, accesses, base)
        if placement.new is None:
            workspaces.append(buffer)
            continue
        placements[buffer] = placement
        by_target.setdefault(id(placement.target), []).append(placement)
    body = _rewrite_accesses(body, placements, by_target)
    outer = by_target.get(id(None), [])
    for placement in reversed(outer):
        assert placement.new is not None
        body = Allocate(placement.new, body)
    made = tuple(Buffer(w.name, w.shape, w.dtype, "global", 64) for w in workspaces)
    replaced = dict(zip(workspaces, made, strict=True))
    body = _rename(body, replaced)
    buffers = (*func.buffers, *made)
    return func.with_fields(params=(*buffers, *func.scalars), body=body).with_attr(
        num_workspaces=func.num_workspaces + len(made)
    )


def _collect(root: Stmt, path: tuple[Stmt, ...], wanted: dict[Buffer, list[_Access]]) -> None:
    stack: list[tuple[Node, tuple[Stmt, ...]]] = [(root, path)]
    while stack:
        node, above = stack.pop()
        if isinstance(node, (Load, Store)) and node.buffer in wanted:
            wanted[node.buffer].append(_Access(above, node.indices))
        if isinstance(node, (For, Let)):
            above = (*above, node)
        for child in children(node):
            if not isinstance(child, Buffer):
                stack.append((child, above))


def _place(buffer: Buffer, accesses: list[_Access], base: Analyzer) -> _Placement:
    common = accesses[0].path
    for access in accesses[1:]:
        length = 0
        while length < min(len(common), len(access.path)) and common[length] is access.path[length]:
            length += 1
        common = common[:length]
    while common and not isinstance(common[-1], For):
        common = common[:-1]
    analyzer = base.copy()
    outer = {s.var for s in common if isinstance(s, For)}
    for access in accesses:
        for s in access.path:
            if isinstance(s, For):
                analyzer.bind_extent(s.var, s.extent)
    region: Region | None = None
    for access in accesses:
        inner = [s.var for s in access.path if isinstance(s, For) and s.var not in outer]
        lets = [s.var for s in access.path if isinstance(s, Let)]
        found = eval_region(point_region(buffer, access.indices), [*inner, *lets], analyzer)
        region = found if region is None else region_union(region, found, analyzer)
    assert region is not None
    shape, offsets = [], []
    for r, full in zip(region.ranges, buffer.shape, strict=True):
        extent = as_int(analyzer.simplify(r.extent))
        if extent is None:
            extent = analyzer.bounds(r.extent)[1]
        whole = as_int(full)
        if extent is None or (whole is not None and whole <= extent):
            extent = whole
            offsets.append(Const(0))
        else:
            offsets.append(r.min)
        shape.append(extent)
    if any(e is None for e in shape) or (buffer.scope == "global" and not common):
        return _Placement(buffer)
    size = buffer.dtype.itemsize
    for e in shape:
        size *= int(e)  # type: ignore[arg-type]
    if size > STACK_LIMIT:
        return _Placement(buffer)
    scope = "local" if buffer.scope == "global" else buffer.scope
    new = Buffer(buffer.name, tuple(Const(int(e)) for e in shape), buffer.dtype, scope, 64)  # type: ignore[arg-type]
    return _Placement(buffer, common[-1] if common else None, new, tuple(offsets))


def _rewrite_accesses(body: Stmt, placements: dict[Buffer, _Placement], by_target: dict[int, list[_Placement]]) -> Stmt:
    originals: dict[Var, For] = {n.var: n for n in post_order(body) if isinstance(n, For)}

    def moved(indices: tuple[Expr, ...], placement: _Placement) -> tuple[Expr, ...]:
        return tuple(i - o for i, o in zip(indices, placement.offsets, strict=True))

    def change(node: Node) -> Node | None:
        if isinstance(node, Load) and node.buffer in placements:
            placement = placements[node.buffer]
            assert placement.new is not None
            return Load(placement.new, moved(node.indices, placement))
        if isinstance(node, Store) and node.buffer in placements:
            placement = placements[node.buffer]
            return node.with_fields(buffer=placement.new, indices=moved(node.indices, placement))
        if isinstance(node, For):
            inner = node.body
            for placement in reversed(by_target.get(id(originals.get(node.var)), [])):
                assert placement.new is not None
                inner = Allocate(placement.new, inner)
            return node.with_fields(body=inner) if inner is not node.body else None
        return None

    return rewrite(body, change, pre=lambda n: n if isinstance(n, Buffer) else None)


def _rename(body: Stmt, replaced: dict[Buffer, Buffer]) -> Stmt:
    if not replaced:
        return body

    def change(node: Node) -> Node | None:
        if isinstance(node, Load) and node.buffer in replaced:
            return Load(replaced[node.buffer], node.indices)
        if isinstance(node, Store) and node.buffer in replaced:
            return node.with_fields(buffer=replaced[node.buffer])
        return None

    return rewrite(body, change, pre=lambda n: n if isinstance(n, Buffer) else None)


def flatten_buffers(func: PrimFunc) -> PrimFunc:
    """Gives every buffer one dimension and every access one row-major index."""
    flat: dict[Buffer, Buffer] = {}

    def flattened(buffer: Buffer) -> Buffer:
        if buffer not in flat:
            flat[buffer] = Buffer(buffer.name, (buffer.numel(),), buffer.dtype, buffer.scope, buffer.align)
        return flat[buffer]

    def index(buffer: Buffer, indices: tuple[Expr, ...]) -> tuple[Expr, ...]:
        total: Expr = Const(0)
        for i, extent in zip(indices, buffer.shape, strict=True):
            total = total * extent + i
        return (total,)

    def change(node: Node) -> Node | None:
        if isinstance(node, Load):
            return Load(flattened(node.buffer), index(node.buffer, node.indices))
        if isinstance(node, Store):
            return node.with_fields(buffer=flattened(node.buffer), indices=index(node.buffer, node.indices))
        if isinstance(node, Allocate):
            return node.with_fields(buffer=flattened(node.buffer))
        return None

    body = rewrite(func.body, change, pre=lambda n: n if isinstance(n, Buffer) else None)
    params = tuple(flattened(p) if isinstance(p, Buffer) else p for p in func.params)
    return func.with_fields(params=params, body=body)


