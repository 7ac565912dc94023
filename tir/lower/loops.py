"""simplify_loops, clip_loops and unroll_loops."""

from __future__ import annotations

from everport.ir.dtype import i64
from everport.ir.node import Node, pre_order, rewrite
from everport.tir.arith import Analyzer
from everport.tir.expr import Binary, Const, Expr, Load, Var, as_int, logical_and, maximum, minimum, substitute
from everport.tir.func import PrimFunc
from everport.tir.lower.blocks import shape_analyzer, within_loop
from everport.tir.stmt import (
    Allocate,
    Evaluate,
    For,
    If,
    Let,
    Seq,
    Stmt,
    Store,
    While,
    seq,
)

EMPTY = Seq(())


def simplify_loops(func: PrimFunc) -> PrimFunc:
    """Canonical indices and conditions under the bounds of the loops around them; drops loops of one step, conditions that
    are decided, and what never runs."""
    analyzer = shape_analyzer(func)
    return func.with_fields(body=_simplified(func.body, analyzer))


def _simplified(s: Stmt, analyzer: Analyzer) -> Stmt:
    match s:
        case Seq():
            parts = [_simplified(p, analyzer) for p in s.stmts]
            kept = [p for p in parts if not _is_empty(p)]
            if len(kept) == len(s.stmts) and all(a is b for a, b in zip(kept, s.stmts, strict=True)):
                return s
            return seq(kept)
        case Store():
            return s.with_fields(
                indices=_all(s.indices, analyzer),
                value=analyzer.simplify(s.value),
                mask=None if s.mask is None else analyzer.simplify(s.mask),
            )
        case For():
            extent = analyzer.simplify(s.extent)
            steps = as_int(extent)
            if steps == 0:
                return EMPTY
            if steps == 1 and s.kind != "thread":
                return _simplified(substitute(s.body, {s.var: Const(0)}), analyzer)
            loop = s.with_fields(extent=extent)
            body = _simplified(s.body, within_loop(analyzer, loop))
            return EMPTY if _is_empty(body) else loop.with_fields(body=body)
        case If():
            cond = analyzer.simplify(s.cond)
            decided = as_int(cond)
            if decided is not None:
                chosen = s.then if decided else s.otherwise
                return EMPTY if chosen is None else _simplified(chosen, analyzer)
            inside = analyzer.copy()
            inside.assume(cond)
            then = _simplified(s.then, inside)
            otherwise = None if s.otherwise is None else _simplified(s.otherwise, analyzer)
            return s.with_fields(cond=cond, then=then, otherwise=otherwise)
        case While():
            return s.with_fields(cond=analyzer.simplify(s.cond), body=_simplified(s.body, analyzer))
        case Let():
            value = analyzer.simplify(s.value)
            lo, hi = analyzer.bounds(value) if value.dtype.is_int else (None, None)
            if s.var.dtype.is_int:
                analyzer.bind(s.var, lo, hi if hi != lo else None)
            return s.with_fields(value=value, body=_simplified(s.body, analyzer))
        case Evaluate():
            return s.with_fields(value=analyzer.simplify(s.value))
        case Allocate():
            return s.with_fields(body=_simplified(s.body, analyzer))
    raise TypeError(f"not a lowered statement: {type(s).__name__}")


def _all(indices: tuple[Expr, ...], analyzer: Analyzer) -> tuple[Expr, ...]:
    new = tuple(analyzer.simplify(i) for i in indices)
    return indices if all(a is b for a, b in zip(new, indices, strict=True)) else new


def _is_empty(s: Stmt) -> bool:
    return isinstance(s, Seq) and not s.stmts


def clip_loops(func: PrimFunc) -> PrimFunc:
    """for v in range(n): if c*v + a < b and d: ...  ->  if d: for v in range(min(n, ceil((b - a) / c))): ...

    `c` is a positive constant; a, b and d don't depend on v. The loop then has no condition in its body.
    """

    def clipped(node: Node) -> Node | None:
        if not isinstance(node, For) or node.kind == "thread":
            return None
        body, around = node.body, []
        while isinstance(body, Allocate):
            around.append(body.buffer)
            body = body.body
        if not isinstance(body, If) or body.otherwise is not None:
            return None
        extent = node.extent
        kept: list[Expr] = []
        outside: list[Expr] = []
        for term in terms_of(body.cond):
            # A parallel loop stays outermost: a nest is started as one.
            if node.kind != "parallel" and not any(n is node.var or isinstance(n, Load) for n in pre_order(term)):
                outside.append(term)
                continue
            limit = _limit(term, node.var) if node.kind in ("serial", "parallel") else None
            if limit is None:
                kept.append(term)
            else:
                extent = minimum(extent, limit)
        if extent is node.extent and not outside:
            return None
        inner: Stmt = If(logical_and(*kept), body.then, None, body.span) if kept else body.then
        for buffer in reversed(around):
            inner = Allocate(buffer, inner)
        if extent is not node.extent:
            extent = maximum(extent, 0)
        loop = node.with_fields(extent=extent, body=inner)
        return If(logical_and(*outside), loop) if outside else loop

    return func.with_fields(body=rewrite(func.body, clipped))


def _limit(term: Expr, var: Var) -> Expr | None:
    """The number of steps from 0 for which `term` holds, if it is an upper bound of `var`."""
    if not isinstance(term, Binary) or term.op not in ("<", "<=", ">", ">=") or term.a.dtype is not i64 or term.lanes > 1:
        return None
    analyzer = Analyzer()
    low, high = (term.a, term.b) if term.op in ("<", "<=") else (term.b, term.a)
    room = analyzer.simplify(high - low if term.op in ("<", ">") else high - low + 1)  # holds where room > 0
    at_zero = analyzer.simplify(substitute(room, {var: Const(0)}))
    step = as_int(analyzer.simplify(at_zero - substitute(room, {var: Const(1)})))
    if step is None or step <= 0 or not analyzer.can_prove_equal(at_zero - var * step, room):
        return None
    if any(n is var or isinstance(n, Load) for n in pre_order(at_zero)):
        return None
    return analyzer.simplify((at_zero + (step - 1)) // step)


def terms_of(cond: Expr) -> tuple[Expr, ...]:
    """The terms of a conjunction."""
    if isinstance(cond, Binary) and cond.op == "and":
        return (*terms_of(cond.a), *terms_of(cond.b))
    return (cond,)


def unroll_loops(func: PrimFunc) -> PrimFunc:
    """Writes out loops of kind "unrolled" whose extent is constant; others become serial. Indices fold on the way."""
    return func.with_fields(body=_unrolled(func.body, {}, True))


def _unrolled(s: Stmt, values: dict[Var, Expr], first: bool) -> Stmt:
    """The statement with the variables around it replaced; copies but the first get loop variables of their own."""
    match s:
        case Seq():
            return seq([_unrolled(p, values, first) for p in s.stmts])
        case For():
            steps = as_int(s.extent)
            if s.kind == "unrolled" and steps is not None:
                return seq([_unrolled(s.body, {**values, s.var: Const(k)}, first and not k) for k in range(steps)])
            kind = "serial" if s.kind == "unrolled" else s.kind
            var, inside = _own(s.var, values, first)
            return s.with_fields(var=var, extent=substitute(s.extent, values), body=_unrolled(s.body, inside, first), kind=kind)
        case If():
            otherwise = None if s.otherwise is None else _unrolled(s.otherwise, values, first)
            return s.with_fields(cond=substitute(s.cond, values), then=_unrolled(s.then, values, first), otherwise=otherwise)
        case While():
            return s.with_fields(cond=substitute(s.cond, values), body=_unrolled(s.body, values, first))
        case Let():
            var, inside = _own(s.var, values, first)
            return s.with_fields(var=var, value=substitute(s.value, values), body=_unrolled(s.body, inside, first))
        case Allocate():
            return s.with_fields(body=_unrolled(s.body, values, first))
    return substitute(s, values)


def _own(var: Var, values: dict[Var, Expr], first: bool) -> tuple[Var, dict[Var, Expr]]:
    if first:
        return var, values
    fresh = Var(var.name, var.dtype)
    return fresh, {**values, var: fresh}
