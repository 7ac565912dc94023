"""Finding and replacing loops and blocks: what every primitive starts from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from everport.ir.errors import ScheduleError
from everport.ir.node import pre_order
from everport.tir.arith import Analyzer
from everport.tir.buffer import Buffer, Region, full_region
from everport.tir.build import loaded_regions
from everport.tir.expr import Const, Expr, Load, Var, as_int, binary, free_vars, substitute
from everport.tir.func import PrimFunc
from everport.tir.stmt import Allocate, Block, For, If, Let, Seq, Stmt, Store, While, seq


def sub_statements(s: Stmt) -> tuple[Stmt, ...]:
    """The statements directly inside a statement (a block's init and body included)."""
    match s:
        case Seq():
            return s.stmts
        case For() | Let() | Allocate() | While():
            return (s.body,)
        case If():
            return (s.then,) if s.otherwise is None else (s.then, s.otherwise)
        case Block():
            return (s.body,) if s.init is None else (s.init, s.body)
    return ()


def path_to(root: Stmt, wanted: Callable[[Stmt], bool]) -> list[Stmt] | None:
    """The chain of statements from `root` to the first wanted one, both included."""
    stack: list[tuple[Stmt, int]] = [(root, 0)]
    chain: list[Stmt] = []
    while stack:
        s, depth = stack.pop()
        del chain[depth:]
        chain.append(s)
        if wanted(s):
            return chain
        stack.extend((child, depth + 1) for child in reversed(sub_statements(s)))
    return None


def block_path(func: PrimFunc, name: str) -> list[Stmt]:
    """From the root to a block."""
    path = path_to(func.body, lambda s: isinstance(s, Block) and s.name == name)
    if path is None:
        names = ", ".join(b.name for b in blocks_in(func.body) if b.iters)
        raise ScheduleError(f"there is no block {name!r}", hint=f"blocks: {names}")
    return path


def loop_path(func: PrimFunc, loop: Var) -> list[Stmt]:
    """From the root to the loop of a variable."""
    path = path_to(func.body, lambda s: isinstance(s, For) and s.var is loop)
    if path is None:
        raise ScheduleError(f"there is no loop {loop.name!r} (it may have been split or fused away)")
    return path


def user_in(top: Stmt, buffer: Buffer, *, readers: bool) -> Block | None:
    """A block of a nest that reads `buffer` without writing it (or, with readers=False, one that writes it)."""
    for block in blocks_in(top):
        regions = block.reads if readers else block.writes
        if any(r.buffer is buffer for r in regions) and not (readers and any(w.buffer is buffer for w in block.writes)):
            return block
    return None


def check_nest(top: Stmt, buffer: Buffer, primitive: str, *, readers: bool) -> None:
    """Raises if a nest holds such a block."""
    block = user_in(top, buffer, readers=readers)
    if block is not None:
        verb = "reads" if readers else "writes"
        raise ScheduleError(f"{primitive}: block {block.name!r} {verb} {buffer.name!r} within the same nest")


def find_loop(func: PrimFunc, loop: Var) -> For:
    found = loop_path(func, loop)[-1]
    assert isinstance(found, For)
    return found


def find_block(func: PrimFunc, name: str) -> Block:
    found = block_path(func, name)[-1]
    assert isinstance(found, Block)
    return found


def blocks_in(s: Stmt) -> list[Block]:
    """Blocks at any depth, in program order."""
    found: list[Block] = []
    stack = [s]
    while stack:
        current = stack.pop()
        if isinstance(current, Block):
            found.append(current)
        stack.extend(reversed(sub_statements(current)))
    return found


def outer_blocks(s: Stmt) -> list[Block]:
    """Blocks under a statement that are not inside another block."""
    found: list[Block] = []
    stack = [s]
    while stack:
        current = stack.pop()
        if isinstance(current, Block):
            found.append(current)
            continue
        stack.extend(reversed(sub_statements(current)))
    return found


def loops_above(func: PrimFunc, name: str) -> list[For]:
    """The loops around a block within the innermost block that holds it, outermost first."""
    path = block_path(func, name)[:-1]
    start = max(k for k, s in enumerate(path) if isinstance(s, Block))
    return [s for s in path[start:] if isinstance(s, For)]


def replace(func: PrimFunc, changes: Mapping[int, Stmt | None]) -> PrimFunc:
    """Replaces statements by identity (None removes one); only the paths to them are rebuilt."""
    body = _replaced(func.body, changes)
    assert body is not None
    return func.with_fields(body=body)


def _replaced(s: Stmt, changes: Mapping[int, Stmt | None]) -> Stmt | None:
    if id(s) in changes:
        return changes[id(s)]
    match s:
        case Seq():
            parts = [_replaced(p, changes) for p in s.stmts]
            if all(a is b for a, b in zip(parts, s.stmts, strict=True)):
                return s
            kept = [p for p in parts if p is not None]
            return seq(kept) if kept else None
        case For() | Let() | Allocate() | While():
            body = _replaced(s.body, changes)
            return None if body is None else s.with_fields(body=body)
        case If():
            then = _replaced(s.then, changes)
            other = None if s.otherwise is None else _replaced(s.otherwise, changes)
            return None if then is None else s.with_fields(then=then, otherwise=other)
        case Block():
            body = _replaced(s.body, changes)
            return s.with_fields(body=Seq(()) if body is None else body)
    return s


def analyzer_for(func: PrimFunc, loops: Iterable[For]) -> Analyzer:
    """Shape symbols and extents of buffers at least 0, loops within their extents."""
    analyzer = Analyzer()
    for symbol in func.scalars:
        if symbol.dtype.is_int:
            analyzer.bind(symbol, 0, None)
    assume_extents(func, analyzer)
    for loop in loops:
        analyzer.bind_extent(loop.var, loop.extent)
    return analyzer


def assume_extents(func: PrimFunc, analyzer: Analyzer) -> None:
    """Extents of buffers are at least 0: the host program refuses sizes that would make one negative."""
    allocs = func.body.allocs if isinstance(func.body, Block) else ()
    for buffer in (*func.buffers, *allocs):
        for extent in buffer.shape:
            if not isinstance(extent, (Const, Var)) and (analyzer.bounds(extent)[0] or -1) < 0 and analyzer.bounds(extent)[0] != 0:
                analyzer.assume(binary(">=", extent, Const(0)))


def loops_in(path: Iterable[Stmt]) -> list[For]:
    return [s for s in path if isinstance(s, For)]


def rebind(s: Stmt, mapping: Mapping[Var, Expr], analyzer: Analyzer, predicate: Expr | None = None) -> Stmt:
    """Substitutes loop variables below a loop: in extents, bindings and predicates; `predicate` is added to each block."""
    match s:
        case Seq():
            return seq([rebind(p, mapping, analyzer, predicate) for p in s.stmts])
        case For():
            extent = analyzer.simplify(substitute(s.extent, mapping))
            analyzer.bind_extent(s.var, extent)
            return s.with_fields(extent=extent, body=rebind(s.body, mapping, analyzer, predicate))
        case Block():
            bindings = tuple(analyzer.simplify(substitute(b, mapping)) for b in s.bindings)
            cond = analyzer.simplify(substitute(s.predicate, mapping))
            if predicate is not None:
                cond = binary("and", cond, predicate)
            return s.with_fields(bindings=bindings, predicate=cond)
        case If():
            other = None if s.otherwise is None else rebind(s.otherwise, mapping, analyzer, predicate)
            return s.with_fields(
                cond=substitute(s.cond, mapping), then=rebind(s.then, mapping, analyzer, predicate), otherwise=other
            )
        case Let() | Allocate() | While():
            return s.with_fields(body=rebind(s.body, mapping, analyzer, predicate))
    return substitute(s, mapping)


def uses(e: Expr, variables: Iterable[Var]) -> bool:
    wanted = set(variables)
    return any(v in wanted for v in free_vars(e))


def inner_vars(block: Block) -> list[Var]:
    """Loop variables inside a block's body."""
    return [n.var for n in pre_order(block.body) if isinstance(n, (For, Let))]


def with_reads(block: Block) -> Block:
    """The block with its read regions worked out from its body."""
    parts: list[Stmt] = [block.body]
    found = loaded_regions(parts, inner_vars(block))
    written = {w.buffer for w in block.writes}
    private = set(block.allocs)
    if len(blocks_in(block.body)):  # the iterators of blocks inside mean nothing outside them
        found = tuple(full_region(r.buffer) for r in found)
    reads = tuple(r for r in found if r.buffer not in private and (block.init is None or r.buffer not in written))
    return block.with_fields(reads=reads)


def consumers_of(func: PrimFunc, buffer: Buffer) -> list[Block]:
    """Outer blocks that read a buffer."""
    return [b for b in outer_blocks(func.root.body) if any(r.buffer is buffer for r in b.reads)]


def producers_of(func: PrimFunc, buffer: Buffer) -> list[Block]:
    """Outer blocks that write a buffer."""
    return [b for b in outer_blocks(func.root.body) if any(w.buffer is buffer for w in b.writes)]


def single_store(block: Block) -> Store | None:
    """The store of a block whose body is one store, else None."""
    return block.body if isinstance(block.body, Store) and block.body.mask is None else None


def is_intermediate(func: PrimFunc, buffer: Buffer) -> bool:
    return any(b is buffer for b in func.root.allocs)


def reads_of(block: Block, buffer: Buffer) -> list[Region]:
    return [r for r in block.reads if r.buffer is buffer]


def loads_of(block: Block, buffer: Buffer) -> list[Load]:
    return [n for n in pre_order(block.body) if isinstance(n, Load) and n.buffer is buffer]


def unique_block_name(func: PrimFunc, wanted: str) -> str:
    names = {b.name for b in blocks_in(func.body)}
    name, number = wanted, 1
    while name in names:
        name, number = f"{wanted}_{number}", number + 1
    return name


def one(extent: Expr) -> bool:
    return as_int(extent) == 1


ZERO = Const(0)
