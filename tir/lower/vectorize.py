"""vectorize_loops: loops of kind "vectorized" become vector expressions."""

from __future__ import annotations

from collections.abc import Callable

from everport.ir.dtype import i64
from everport.ir.node import Node, children, post_order, pre_order, rewrite
from everport.tir.arith import Analyzer
from everport.tir.buffer import Buffer
from everport.tir.expr import (
    Binary,
    Broadcast,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Ramp,
    Select,
    Unary,
    Var,
    as_int,
    substitute,
)
from everport.tir.func import PrimFunc
from everport.tir.lower.blocks import LoopScopes, shape_analyzer
from everport.tir.stmt import Allocate, For, If, Let, Seq, Stmt, Store, While, seq


def vectorize_loops(func: PrimFunc) -> PrimFunc:
    """Replaces `for v in vectorized(L): body` (L constant) by the body over vectors of L lanes.

    Indices linear in v become ramps (stride 1: one vector access), others gathers; conditions on v become masks of the
    stores. A body that cannot be vectorized (an accumulation over v, a loop whose extent depends on v) runs serially.
    """
    return func.with_fields(body=_walk(func.body, (), LoopScopes(shape_analyzer(func), func.body)))


def _walk(s: Stmt, path: tuple[Stmt, ...], scopes: LoopScopes) -> Stmt:
    match s:
        case Seq():
            return seq([_walk(p, path, scopes) for p in s.stmts])
        case For():
            body = _walk(s.body, (*path, s), scopes)
            if s.kind != "vectorized":
                return s.with_fields(body=body)
            lanes = as_int(s.extent)
            if lanes is not None and lanes > 1:
                done = _Vectorizer(s.var, lanes, lambda: scopes.within(path), body).stmt(body, None)
                if done is not None:
                    return done
            return s.with_fields(body=body, kind="serial")
        case If():
            otherwise = None if s.otherwise is None else _walk(s.otherwise, path, scopes)
            return s.with_fields(then=_walk(s.then, path, scopes), otherwise=otherwise)
        case Let() | While() | Allocate():
            return s.with_fields(body=_walk(s.body, path, scopes))
    return s


def buffers_of(e: Expr) -> set[Buffer]:
    """The buffers that an expression loads."""
    return {n.buffer for n in pre_order(e) if isinstance(n, Load)}


class _Vectorizer:
    """Turns statements over a scalar variable into statements over `lanes` values of it."""

    def __init__(self, var: Var, lanes: int, analyzer: Callable[[], Analyzer], body: Stmt) -> None:
        self.var = var
        self.lanes = lanes
        self.analyzer = analyzer
        self.memo: dict[Expr, Expr] = {}
        self.mentions: dict[Expr, bool] = {}
        self.written = {n.buffer for n in pre_order(body) if isinstance(n, Store)}

    def depends(self, e: Expr) -> bool:
        """True if the variable occurs in an expression."""
        known = self.mentions
        if e not in known:
            for node in post_order(e):
                if isinstance(node, Expr) and node not in known:
                    known[node] = node is self.var or any(isinstance(c, Expr) and known[c] for c in children(node))
        return known[e]

    def stmt(self, s: Stmt, mask: Expr | None) -> Stmt | None:
        """The vector form, or None if there is none."""
        match s:
            case Seq():
                parts = [self.stmt(p, mask) for p in s.stmts]
                return None if any(p is None for p in parts) else seq([p for p in parts if p is not None])
            case Store():
                return self.store(s, mask)
            case For():
                if self.depends(s.extent) or s.kind in ("parallel", "thread"):
                    return None
                body = self.stmt(s.body, mask)
                return None if body is None else s.with_fields(body=body)
            case If():
                return self.branch(s, mask)
            case Allocate():
                return self.allocate(s, mask)
            case Let():
                if self.depends(s.value):
                    return None
                body = self.stmt(s.body, mask)
                return None if body is None else s.with_fields(body=body)
        return None

    def allocate(self, s: Allocate, mask: Expr | None) -> Stmt | None:
        """A buffer of each lane's own: the lanes' elements stand side by side."""
        old = s.buffer
        new = Buffer(old.name, (old.shape[0] * self.lanes,), old.dtype, old.scope, old.align)

        def moved(n: Node) -> Node | None:
            if isinstance(n, Load) and n.buffer is old:
                return Load(new, (n.indices[0] * self.lanes + self.var,))
            if isinstance(n, Store) and n.buffer is old:
                return n.with_fields(buffer=new, indices=(n.indices[0] * self.lanes + self.var,))
            return None

        self.written.add(new)
        body = self.stmt(rewrite(s.body, moved, pre=lambda n: n if isinstance(n, Buffer) else None), mask)
        return None if body is None else Allocate(new, body)

    def branch(self, s: If, mask: Expr | None) -> Stmt | None:
        if not self.depends(s.cond):
            then = self.stmt(s.then, mask)
            otherwise = None if s.otherwise is None else self.stmt(s.otherwise, mask)
            if then is None or (s.otherwise is not None and otherwise is None):
                return None
            return s.with_fields(then=then, otherwise=otherwise)
        cond = self.wide(self.expr(s.cond))
        then = self.stmt(s.then, cond if mask is None else Binary("and", mask, cond))
        if then is None or s.otherwise is None:
            return then
        negated = Unary("not", cond)
        otherwise = self.stmt(s.otherwise, negated if mask is None else Binary("and", mask, negated))
        return None if otherwise is None else seq(then, otherwise)

    def store(self, s: Store, mask: Expr | None) -> Stmt | None:
        if s.mask is not None or s.value.lanes > 1 or any(i.lanes > 1 for i in s.indices):
            return None
        if not any(self.depends(i) for i in s.indices):
            # Every lane would write one place: right only if all write the same, no mask chooses, and it is no running value.
            if self.depends(s.value) or mask is not None or any(b in self.written for b in buffers_of(s.value)):
                return None
            return s
        return Store(s.buffer, tuple(self.wide(self.index(i)) for i in s.indices), self.wide(self.expr(s.value)), mask, s.span)

    def index(self, e: Expr) -> Expr:
        """An index as a ramp where it is linear in the variable."""
        if not self.depends(e):
            return e
        ramp = self.ramp(e)
        return self.expr(e) if ramp is None else ramp

    def ramp(self, e: Expr) -> Ramp | None:
        """An i64 expression that is linear in the variable as base + step * lane."""
        stride = self.stride(e)
        if stride is not None:
            return Ramp(substitute(e, {self.var: Const(0)}), Const(stride), self.lanes)
        analyzer = self.analyzer()
        base = analyzer.simplify(substitute(e, {self.var: Const(0)}))
        step = analyzer.simplify(substitute(e, {self.var: Const(1)}) - base)
        if not self.depends(step) and analyzer.can_prove_equal(base + step * self.var, e):
            return Ramp(base, step, self.lanes)
        return None

    def stride(self, e: Expr) -> int | None:
        """The factor of the variable where e is plainly a sum with constant factors."""
        if e is self.var:
            return 1
        if not self.depends(e):
            return 0
        if isinstance(e, Binary) and e.op in ("+", "-"):
            a, b = self.stride(e.a), self.stride(e.b)
            return None if a is None or b is None else a + b if e.op == "+" else a - b
        if isinstance(e, Binary) and e.op == "*" and isinstance(e.b, Const):
            a = self.stride(e.a)
            return None if a is None else a * int(e.b.value)
        return None

    def wide(self, e: Expr) -> Expr:
        return e if e.lanes > 1 else Broadcast(e, self.lanes)

    def expr(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            found = self._expr(e)
            self.memo[e] = found
        return found

    def _expr(self, e: Expr) -> Expr:
        if not self.depends(e):
            return e
        if e.dtype is i64 and isinstance(e, (Binary, Var)):
            ramp = self.ramp(e)
            if ramp is not None:
                return ramp
        match e:
            case Binary():
                return Binary(e.op, self.wide(self.expr(e.a)), self.wide(self.expr(e.b)))
            case Unary():
                return Unary(e.op, self.wide(self.expr(e.a)))
            case Select():
                cond = self.expr(e.cond)
                return Select(cond, self.wide(self.expr(e.a)), self.wide(self.expr(e.b)))
            case Cast():
                return Cast(self.wide(self.expr(e.a)), e.dtype)
            case Call():
                return Call(e.name, tuple(self.wide(self.expr(a)) for a in e.args), e.dtype)
            case Load():
                return Load(e.buffer, tuple(self.wide(self.index(i)) for i in e.indices))
        raise TypeError(f"cannot vectorize {e}")
