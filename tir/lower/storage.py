"""Where intermediates live: compaction to the region in use, workspaces for the rest, and flat indices."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from everport.ir.errors import CompileError
from everport.ir.node import Node, children, post_order, pre_order, rewrite
from everport.tir.arith import Analyzer, eval_region, region_union
from everport.tir.buffer import Buffer, Region, point_region
from everport.tir.expr import Const, Expr, Load, Select, Var, as_int, binary, free_vars, logical_not
from everport.tir.func import PrimFunc
from everport.tir.lower.blocks import LoopScopes, shape_analyzer
from everport.tir.lower.loops import terms_of
from everport.tir.stmt import Allocate, For, If, Let, Seq, Stmt, Store, While

STACK_LIMIT = 256 * 1024  # bytes of one local buffer; larger ones become workspaces


@dataclass(slots=True)
class _Access:
    """One access: the loops and lets above it (outermost first), its indices, and the conditions it stands under."""

    path: tuple[Stmt, ...]
    indices: tuple[Expr, ...]
    conds: tuple[Expr, ...]
    is_store: bool


@dataclass(slots=True)
class _Placement:
    """What becomes of a buffer: `new` in its place, `lead` indices before those of the access less `offsets`; allocated in
    the body of the loop `target`, or a workspace (None)."""

    new: Buffer
    target: Stmt | None = None
    offsets: tuple[Expr, ...] = field(default=())
    lead: tuple[Expr, ...] = field(default=())


def place_buffers(func: PrimFunc) -> PrimFunc:
    """Allocates each intermediate in the innermost loop that holds all its accesses, shrunk to the region used there.

    A loop qualifies if each of its steps writes what it reads: state that one step leaves to the next needs an outer place.
    Buffers whose accesses spread over several nests, or whose region has no constant size (or a large one), become
    workspaces: extra buffer parameters after the outputs (attribute num_workspaces). Within a parallel loop whose steps
    would touch the same part of one, each step has its own.
    """
    wanted: dict[Buffer, list[_Access]] = {}
    body = func.body
    while isinstance(body, Allocate):
        wanted[body.buffer] = []
        body = body.body
    for node in list(pre_order(body)):
        if isinstance(node, Allocate) and _stack_bytes(node.buffer) > STACK_LIMIT:
            wanted[node.buffer] = []
    if not wanted:
        return func
    body = rewrite(body, lambda n: n.body if isinstance(n, Allocate) and n.buffer in wanted else None)
    _Collector(wanted).stmt(body, (), ())
    known = LoopScopes(shape_analyzer(func), body)
    scalars = set(func.scalars)
    placements = {b: _place(b, accesses, known, scalars) for b, accesses in wanted.items() if accesses}
    body = _rewrite_accesses(body, placements)
    made = [p.new for p in placements.values() if p.target is None]
    params = (*func.buffers, *made, *func.scalars)
    return func.with_fields(params=params, body=body).with_attr(num_workspaces=func.num_workspaces + len(made))


def _stack_bytes(buffer: Buffer) -> int:
    """Bytes of a buffer; more than the limit if they are not known."""
    size = buffer.dtype.itemsize
    for extent in buffer.shape:
        known = as_int(extent)
        if known is None:
            return STACK_LIMIT + 1
        size *= known
    return size


class _Collector:
    """Lists the accesses of buffers in program order, the loads of a store before the store."""

    def __init__(self, wanted: dict[Buffer, list[_Access]]) -> None:
        self.wanted = wanted
        self.holds: dict[Node, bool] = {}

    def interesting(self, e: Expr) -> bool:
        """True if an expression loads a wanted buffer."""
        if e not in self.holds:
            for node in post_order(e):
                if node not in self.holds:
                    own = isinstance(node, Load) and node.buffer in self.wanted
                    self.holds[node] = own or any(self.holds.get(c, False) for c in children(node))
        return self.holds[e]

    def stmt(self, s: Stmt, path: tuple[Stmt, ...], conds: tuple[Expr, ...]) -> None:
        match s:
            case Seq():
                for part in s.stmts:
                    self.stmt(part, path, conds)
            case Store():
                under = conds if s.mask is None else (*conds, *terms_of(s.mask))
                for e in (*s.indices, s.value, *(() if s.mask is None else (s.mask,))):
                    self.expr(e, path, under)
                if s.buffer in self.wanted:
                    self.wanted[s.buffer].append(_Access(path, s.indices, under, True))
            case If():
                self.expr(s.cond, path, conds)
                self.stmt(s.then, path, (*conds, *terms_of(s.cond)))
                if s.otherwise is not None:
                    self.stmt(s.otherwise, path, (*conds, *terms_of(logical_not(s.cond))))
            case For():
                self.expr(s.extent, path, conds)
                self.stmt(s.body, (*path, s), conds)
            case Let():
                self.expr(s.value, path, conds)
                self.stmt(s.body, (*path, s), conds)
            case While():
                # What is written in one step may be read in the next: the condition stands for "not known to run".
                self.expr(s.cond, path, conds)
                self.stmt(s.body, path, (*conds, s.cond))
            case Allocate():
                self.stmt(s.body, path, conds)
            case _:
                for child in children(s):
                    if isinstance(child, Expr):
                        self.expr(child, path, conds)

    def expr(self, root: Expr, path: tuple[Stmt, ...], conds: tuple[Expr, ...]) -> None:
        seen: set[tuple[Node, int]] = set()
        stack: list[tuple[Node, tuple[Expr, ...]]] = [(root, conds)]
        while stack:
            e, under = stack.pop()
            if (e, len(under)) in seen or not isinstance(e, Expr) or not self.interesting(e):
                continue
            seen.add((e, len(under)))
            if isinstance(e, Load) and e.buffer in self.wanted:
                self.wanted[e.buffer].append(_Access(path, e.indices, under, False))
            if isinstance(e, Select):
                stack.append((e.cond, under))
                stack.append((e.a, (*under, *terms_of(e.cond))))
                stack.append((e.b, (*under, *terms_of(logical_not(e.cond)))))
            else:
                stack.extend((c, under) for c in children(e))


def _place(buffer: Buffer, accesses: list[_Access], known: LoopScopes, scalars: set[Var]) -> _Placement:
    common = accesses[0].path
    for access in accesses[1:]:
        length = 0
        while length < min(len(common), len(access.path)) and common[length] is access.path[length]:
            length += 1
        common = common[:length]
    while True:
        while common and not isinstance(common[-1], For):
            common = common[:-1]
        analyzer = known.within(common)
        if not common or not _carried(buffer, accesses, common, analyzer):
            break
        common = common[:-1]
    region: Region | None = None
    for access in accesses:
        found = eval_region(point_region(buffer, access.indices), _below(access, common), analyzer)
        region = found if region is None else region_union(region, found, analyzer)
    assert region is not None
    if common:
        local = _local(buffer, region, common[-1], analyzer)
        if local is not None:
            return local
    parallel = [s for s in common if isinstance(s, For) and s.kind == "parallel"]
    if not parallel or _disjoint(region, parallel, common, analyzer):
        return _Placement(Buffer(buffer.name, buffer.shape, buffer.dtype, "global", 64), None, (Const(0),) * buffer.rank)
    return _private(buffer, region, parallel, analyzer, scalars)


def _below(access: _Access, common: tuple[Stmt, ...]) -> list[Var]:
    """The variables that loops and lets under the common ones define."""
    return [s.var for s in access.path[len(common) :] if isinstance(s, (For, Let))]


def _local(buffer: Buffer, region: Region, target: Stmt, analyzer: Analyzer) -> _Placement | None:
    """A buffer of constant size within a loop, if it is small enough."""
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
        if extent is None:
            return None
        shape.append(Const(max(0, extent)))
    scope = "local" if buffer.scope == "global" else buffer.scope
    new = Buffer(buffer.name, tuple(shape), buffer.dtype, scope, 64)
    return None if _stack_bytes(new) > STACK_LIMIT else _Placement(new, target, tuple(offsets))


def _private(buffer: Buffer, region: Region, parallel: list[For], analyzer: Analyzer, scalars: set[Var]) -> _Placement:
    """A workspace with a part for every step of the parallel loops."""
    shape, offsets = [], []
    for r, full in zip(region.ranges, buffer.shape, strict=True):
        extent = analyzer.simplify(r.extent)
        known = _known(extent, scalars)
        shape.append(extent if known else full)
        offsets.append(r.min if known else Const(0))
    for loop in parallel:
        if not _known(loop.extent, scalars):
            raise CompileError(
                f"buffer {buffer.name!r} needs a part for every step of the parallel loop {loop.var.name!r}, "
                f"whose extent {loop.extent} is not known before it runs",
                hint="parallelise an outer loop, or compute the buffer outside this loop",
            )
    new = Buffer(buffer.name, (*(p.extent for p in parallel), *shape), buffer.dtype, "global", 64)
    return _Placement(new, None, tuple(offsets), tuple(p.var for p in parallel))


def _known(e: Expr, scalars: set[Var]) -> bool:
    return not _loads(e) and set(free_vars(e)) <= scalars


def _loads(e: Expr) -> bool:
    return any(isinstance(n, Load) for n in pre_order(e))


def _disjoint(region: Region, parallel: list[For], common: tuple[Stmt, ...], analyzer: Analyzer) -> bool:
    """True if different steps of the (one) parallel loop are proved to use different parts of the buffer."""
    if len(parallel) > 1:
        return False
    var = parallel[0].var
    inner = common[common.index(parallel[0]) + 1 :]
    others = [s.var for s in inner if isinstance(s, (For, Let))]
    box = eval_region(region, others, analyzer)
    for r in box.ranges:
        k = analyzer.simplify(_shifted(r.min, var) - r.min)
        stride = as_int(k)
        linear = stride is not None and analyzer.can_prove_equal(_at(r.min, var, Const(0)) + k * var, r.min)
        if linear and stride is not None and stride > 0 and analyzer.can_prove(binary("<=", r.extent, Const(stride))):
            return True
    return False


def _shifted(e: Expr, var: Var) -> Expr:
    return _at(e, var, var + 1)


def _at(e: Expr, var: Var, value: Expr) -> Expr:
    return rewrite(e, lambda n: value if n is var else None)


def _carried(buffer: Buffer, accesses: list[_Access], common: tuple[Stmt, ...], analyzer: Analyzer) -> bool:
    """True unless each step of the innermost common loop is proved to write, before it reads, all that it reads."""
    outer = {s.var for s in common if isinstance(s, (For, Let))}
    writes: list[tuple[Region, set[Expr]]] = []
    proved: set[tuple[tuple[Expr, ...], tuple[Expr, ...]]] = set()
    for access in accesses:
        if access.is_store:
            if any(_loads(e) for e in (*access.indices, *access.conds)):
                continue  # what is written depends on data: it counts as nothing
            region = eval_region(point_region(buffer, access.indices), _below(access, common), analyzer)
            fixed = {c for c in access.conds if set(free_vars(c)) <= outer}
            writes.append((region, fixed))
            continue
        if (access.indices, access.conds) in proved:
            continue
        usable = [region for region, conds in writes if conds <= set(access.conds)]
        if not usable:
            return True
        inside = analyzer.copy()
        for cond in access.conds:
            inside.assume(cond)
        if not any(_contains(w, access.indices, inside) for w in usable):
            hull = usable[0]
            for w in usable[1:]:
                hull = region_union(hull, w, analyzer)
            if len(usable) == 1 or not _contains(hull, access.indices, inside):
                return True
        proved.add((access.indices, access.conds))
    return False


def _contains(region: Region, indices: Iterable[Expr], analyzer: Analyzer) -> bool:
    return all(
        analyzer.can_prove(binary("<=", r.min, i)) and analyzer.can_prove(binary("<", i, r.min + r.extent))
        for r, i in zip(region.ranges, indices, strict=True)
    )


def _rewrite_accesses(body: Stmt, placements: dict[Buffer, _Placement]) -> Stmt:
    by_loop: dict[Var, list[Buffer]] = {}
    for placement in placements.values():
        if isinstance(placement.target, For):
            by_loop.setdefault(placement.target.var, []).append(placement.new)

    def moved(indices: tuple[Expr, ...], placement: _Placement) -> tuple[Expr, ...]:
        return (*placement.lead, *(i - o for i, o in zip(indices, placement.offsets, strict=True)))

    def change(node: Node) -> Node | None:
        if isinstance(node, Load) and node.buffer in placements:
            placement = placements[node.buffer]
            return Load(placement.new, moved(node.indices, placement))
        if isinstance(node, Store) and node.buffer in placements:
            placement = placements[node.buffer]
            return node.with_fields(buffer=placement.new, indices=moved(node.indices, placement))
        if isinstance(node, For) and node.var in by_loop:
            inner = node.body
            for buffer in reversed(by_loop[node.var]):
                inner = Allocate(buffer, inner)
            return node.with_fields(body=inner)
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
