"""Analyzer: simplifies index expressions and proves facts about them.

Index arithmetic is i64 and taken not to overflow. A variable is unbounded unless bound. Facts are kept as `expr >= 0`.
`can_prove` is sound, not complete: False means "not shown".
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from everport.ir.dtype import boolean, i64
from everport.tir.arith.linear import Linear, factors_of, order_key, product
from everport.tir.expr import (
    COMPARISONS,
    Binary,
    Call,
    Cast,
    Const,
    Expr,
    ExprLike,
    Load,
    Select,
    Unary,
    Var,
    as_int,
    binary,
    cast,
    const,
    logical_not,
    select,
)

Bounds = tuple[int | None, int | None]
_NEGATED = {"==": "!=", "!=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Analyzer:
    """Holds what is known of variables and memoises by identity; binding a variable forgets what was derived."""

    def __init__(self, bounds: Mapping[Var, Bounds] | None = None) -> None:
        self._bounds: dict[Var, Bounds] = dict(bounds or {})
        self._upper: dict[Var, Expr] = {}  # exclusive symbolic upper bounds of loop variables (which start at 0)
        self._facts: list[Linear] = []
        self._divisors: dict[Expr, int] = {}
        self._linear: dict[Expr, Linear] = {}
        self._simple: dict[Expr, Expr] = {}
        self._interval: dict[Expr, Bounds] = {}
        self._pending: set[Expr] = set()
        self._tainted = False

    def copy(self) -> Analyzer:
        """An analyzer that knows the same and can learn more by itself."""
        other = Analyzer(self._bounds)
        other._upper = dict(self._upper)
        other._facts = list(self._facts)
        other._divisors = dict(self._divisors)
        return other

    def _forget(self) -> None:
        self._linear.clear()
        self._simple.clear()
        self._interval.clear()

    def bind(self, var: Var, lo: ExprLike | None, hi: ExprLike | None) -> None:
        """States lo <= var <= hi; symbolic ends become facts."""
        low = as_int(lo) if lo is not None else None
        high = as_int(hi) if hi is not None else None
        if self._bounds.get(var) != (low, high):
            self._bounds[var] = (low, high)
            self._forget()
        if isinstance(lo, Expr) and low is None:
            self.assume(binary(">=", var, lo))
        if isinstance(hi, Expr) and high is None:
            self.assume(binary("<=", var, hi))

    def bind_extent(self, var: Var, extent: ExprLike) -> None:
        """States 0 <= var < extent, as of a loop variable."""
        known = as_int(extent)
        if known is not None:
            self.bind(var, 0, known - 1)
            return
        assert isinstance(extent, Expr)
        upper = self.bounds(extent)[1]
        self.bind(var, 0, None if upper is None else upper - 1)
        if self._upper.get(var) is not extent:
            self._upper[var] = extent
            self._forget()

    def assume(self, cond: Expr) -> None:
        """Adds a fact: comparisons, conjunctions, `e % c == 0`."""
        if not isinstance(cond, Binary):
            return
        if cond.op == "and":
            self.assume(cond.a)
            self.assume(cond.b)
            return
        if cond.op == "==" and isinstance(cond.a, Binary) and cond.a.op == "%" and as_int(cond.b) == 0:
            divisor = as_int(cond.a.b)
            if divisor:
                self._divisors[self.simplify(cond.a.a)] = divisor
                self._forget()
            return
        if cond.op in COMPARISONS and cond.a.dtype.is_int and cond.op != "!=":
            difference = self.linear(cond.b).add(self.linear(cond.a), -1)  # b - a
            for sign, shift in {"<": [(1, -1)], "<=": [(1, 0)], ">": [(-1, -1)], ">=": [(-1, 0)], "==": [(1, 0), (-1, 0)]}[
                cond.op
            ]:
                fact = difference.scaled(sign)
                fact.const += shift
                self._facts.append(fact)
            self._forget()

    # -- simplification ------------------------------------------------------------------------------------------------

    def simplify(self, e: ExprLike) -> Expr:
        """The canonical form: equal sums become the same object; divisions, remainders, min, max and comparisons are
        resolved where bounds decide them."""
        e = const(e)
        found = self._simple.get(e)
        if found is None:
            found = self._simplify(e)
            self._simple[e] = found
            self._simple[found] = found
        return found

    def _simplify(self, e: Expr) -> Expr:
        if e.lanes == 1 and e.dtype is i64 and not isinstance(e, (Load, Const, Var)):
            return self.linear(e).to_expr()
        match e:
            case Binary() if e.op in COMPARISONS and e.a.dtype is i64 and e.lanes == 1:
                verdict = self._decide(e)
                return e if verdict is None and not self._changes(e) else self._rebuilt(e) if verdict is None else Const(verdict, boolean)
            case Binary():
                return binary(e.op, self.simplify(e.a), self.simplify(e.b))
            case Unary():
                inner = self.simplify(e.a)
                if e.op == "not" and isinstance(inner, Binary) and inner.op in _NEGATED and inner.a.dtype.is_int:
                    return self.simplify(binary(_NEGATED[inner.op], inner.a, inner.b))
                return logical_not(inner) if e.op == "not" else Unary(e.op, inner)
            case Select():
                return select(self.simplify(e.cond), self.simplify(e.a), self.simplify(e.b))
            case Cast():
                return cast(self.simplify(e.a), e.dtype)
            case Call():
                return Call(e.name, tuple(self.simplify(a) for a in e.args), e.dtype)
            case Load():
                return Load(e.buffer, tuple(self.simplify(i) for i in e.indices))
        return e

    def _changes(self, e: Binary) -> bool:
        return self.simplify(e.a) is not e.a or self.simplify(e.b) is not e.b

    def _rebuilt(self, e: Binary) -> Expr:
        return binary(e.op, self.simplify(e.a), self.simplify(e.b))

    def _decide(self, e: Binary) -> bool | None:
        """True or False where the comparison is decided."""
        difference = self._combined(self.linear(e.b).add(self.linear(e.a), -1))  # b - a
        if not difference.terms:
            d = difference.const
            return {"==": d == 0, "!=": d != 0, "<": d > 0, "<=": d >= 0, ">": d < 0, ">=": d <= 0}[e.op]
        if e.op in ("==", "!="):
            lo, hi = self._linear_bounds(difference)
            if (lo is not None and lo > 0) or (hi is not None and hi < 0) or self._modular_excludes(difference):
                return e.op == "!="
            if self._nonnegative(difference) and self._nonnegative(difference.scaled(-1)):
                return e.op == "=="
            return None
        sign, shift = {"<": (1, -1), "<=": (1, 0), ">": (-1, -1), ">=": (-1, 0)}[e.op]
        wanted = difference.scaled(sign)
        wanted.const += shift
        if self._nonnegative(wanted):
            return True
        opposite = wanted.scaled(-1)
        opposite.const -= 1
        return False if self._nonnegative(opposite) else None

    def _modular_excludes(self, difference: Linear) -> bool:
        divisor = math.gcd(*(abs(c) for c in difference.terms.values()))
        return divisor > 1 and difference.const % divisor != 0

    def linear(self, e: Expr) -> Linear:
        """The linear form of an i64 expression over canonical atoms."""
        found = self._linear.get(e)
        if found is None:
            if e in self._pending:  # a proof on the way came back to e: it is taken as it is, and the proof not kept
                self._tainted = True
                return Linear({e: 1})
            self._pending.add(e)
            found = self._make_linear(e)
            self._pending.discard(e)
            self._linear[e] = found
        return found

    def _make_linear(self, e: Expr) -> Linear:
        match e:
            case Const():
                return Linear({}, int(e.value))
            case Var():
                lo, hi = self._bounds.get(e, (None, None))
                return Linear({}, lo) if lo is not None and lo == hi else Linear({e: 1})
            case Binary(op="+"):
                return self._combined(self.linear(e.a).add(self.linear(e.b)))
            case Binary(op="-"):
                return self._combined(self.linear(e.a).add(self.linear(e.b), -1))
            case Binary(op="*"):
                return self._multiply(self.linear(e.a), self.linear(e.b))
            case Binary(op="//"):
                return self._floordiv(self.linear(e.a), self.linear(e.b))
            case Binary(op="%"):
                return self._floormod(self.linear(e.a), self.linear(e.b))
            case Binary(op="min") | Binary(op="max"):
                return self._extremum(e)
            case Unary(op="neg"):
                return self.linear(e.a).scaled(-1)
            case Load():
                return Linear({Load(e.buffer, tuple(self.simplify(i) for i in e.indices)): 1})
            case Select():
                chosen = select(self.simplify(e.cond), self.simplify(e.a), self.simplify(e.b))
                return Linear({chosen: 1}) if isinstance(chosen, Select) else self.linear(chosen)
            case Cast():
                inner = cast(self.simplify(e.a), e.dtype)
                return Linear({inner: 1}) if isinstance(inner, Cast) else self.linear(inner)
            case Binary():
                folded = binary(e.op, self.simplify(e.a), self.simplify(e.b))
                return Linear({}, int(folded.value)) if isinstance(folded, Const) else Linear({folded: 1})
            case Call():
                return Linear({Call(e.name, tuple(self.simplify(a) for a in e.args), e.dtype): 1})
        return Linear({e: 1})

    def _combined(self, form: Linear) -> Linear:
        """Joins k*c*(x // c) + k*(x % c) into k*x, and k*x - k*c*(x // c) into k*(x % c)."""
        for atom, k in form.terms.items():
            if isinstance(atom, Binary) and atom.op == "%":
                partner = Binary("//", atom.a, atom.b)
                c = as_int(atom.b)
                if c is not None and form.terms.get(partner) == k * c:
                    rest = Linear({a: v for a, v in form.terms.items() if a is not atom and a is not partner}, form.const)
                    return self._combined(rest.add(self.linear(atom.a), k))
            if isinstance(atom, Binary) and atom.op == "//" and not isinstance(atom.a, Const):
                # k*x - k*c*(x // c) is k*(x % c)
                c = as_int(atom.b)
                partner, step = self._coarser(form, atom, k)
                if partner is not None:
                    rest = Linear({a: v for a, v in form.terms.items() if a is not atom and a is not partner}, form.const)
                    part = self._floormod(Linear({partner: 1}), Linear({}, step))
                    return self._combined(rest.add(part, -k // step))
                if c is not None and c > 1 and k % c == 0 and form.terms.get(atom.a) == -k // c:
                    rest = Linear({a: v for a, v in form.terms.items() if a is not atom and a is not atom.a}, form.const)
                    return self._combined(rest.add(self._floormod(self.linear(atom.a), Linear({}, c)), -k // c))
        return form

    def _coarser(self, form: Linear, atom: Binary, k: int) -> tuple[Expr | None, int]:
        """For k * (x // (p*c)) beside -k/c * (x // p): that quotient x // p, and c."""
        d = as_int(atom.b)
        if d is None:
            return None, 0
        for other, j in form.terms.items():
            if other is not atom and isinstance(other, Binary) and other.op == "//" and other.a is atom.a:
                p = as_int(other.b)
                if p and d % p == 0 and d > p and k % (d // p) == 0 and j == -k // (d // p):
                    return other, d // p
        return None, 0

    def _multiply(self, a: Linear, b: Linear) -> Linear:
        if not b.terms:
            return a.scaled(b.const)
        if not a.terms:
            return b.scaled(a.const)
        result = Linear({}, a.const * b.const)
        for x, cx in a.terms.items():
            result = result.add(Linear({x: cx * b.const}) if b.const else Linear({}))
            for y, cy in b.terms.items():
                result = result.add(Linear({product([*factors_of(x), *factors_of(y)]): cx * cy}))
        for y, cy in b.terms.items():
            if a.const:
                result = result.add(Linear({y: cy * a.const}))
        return result

    def _split_by(self, form: Linear, divisor: Linear) -> tuple[Linear, Linear] | None:
        """form = divisor * quotient + rest for what divides term by term; None where the divisor has no such shape."""
        quotient, rest = Linear({}), Linear({}, 0)
        if not divisor.terms:
            c = divisor.const
            for atom, k in form.terms.items():
                q, r = divmod(k, c)
                known = self._divisors.get(atom, 1)
                if r and known > 1 and (k * known) % c == 0 and c % known == 0 and k % (c // known) == 0:
                    # k*atom = c * ((k*known/c) * (atom/known))
                    quotient = quotient.add(Linear({Binary("//", atom, Const(known)): k * known // c}))
                    continue
                if k < 0 and r:
                    q, r = -((-k) // c), -((-k) % c)
                if q:
                    quotient.terms[atom] = quotient.terms.get(atom, 0) + q
                if r:
                    rest.terms[atom] = r
            quotient.const, rest.const = divmod(form.const, c)
            return quotient, rest
        if len(divisor.terms) != 1 or divisor.const:
            return None
        symbol, scale = next(iter(divisor.terms.items()))
        wanted = factors_of(symbol)
        for atom, k in form.terms.items():
            have = factors_of(atom)
            remaining = list(have)
            for factor in wanted:
                if factor in remaining:
                    remaining.remove(factor)
                else:
                    remaining = []
                    break
            else:
                if k % scale == 0:
                    piece = Linear({product(remaining): k // scale}) if remaining else Linear({}, k // scale)
                    quotient = quotient.add(piece)
                    continue
            rest.terms[atom] = k
        rest.const = form.const
        return quotient, rest

    def _positive(self, form: Linear) -> bool:
        return self._nonnegative(Linear(form.terms, form.const - 1))

    def _floordiv(self, a: Linear, b: Linear) -> Linear:
        if not b.terms and b.const == 0:
            return Linear({Binary("//", a.to_expr(), b.to_expr()): 1})
        if not b.terms and b.const < 0:
            return self._floordiv(a.scaled(-1), b.scaled(-1))
        if not b.terms and not a.terms:
            return Linear({}, a.const // b.const)
        parts = self._split_by(a, b)
        if parts is not None and (not b.terms or self._positive(b)):
            quotient, rest = parts
            if self._within(rest, b):
                return quotient
            if not b.terms:
                c = b.const
                lo, hi = self._linear_bounds(rest)
                if lo is not None and hi is not None and lo // c == hi // c:
                    return Linear(quotient.terms, quotient.const + lo // c)
                return quotient.add(self._plain_div(rest, c))
            if quotient.terms or quotient.const:
                return quotient.add(Linear({Binary("//", rest.to_expr(), b.to_expr()): 1}))
        return Linear({Binary("//", a.to_expr(), b.to_expr()): 1})

    def _plain_div(self, rest: Linear, c: int) -> Linear:
        """rest // c with the common divisor taken out and nested quotients joined."""
        g = math.gcd(c, *(abs(k) for k in rest.terms.values()))
        if g > 1:
            rest = Linear({a: k // g for a, k in rest.terms.items()}, rest.const // g)
            c //= g
            if c == 1:
                return rest
        if len(rest.terms) == 1 and not rest.const:
            atom, k = next(iter(rest.terms.items()))
            if k == 1 and isinstance(atom, Binary) and atom.op == "//":
                inner = as_int(atom.b)
                if inner is not None and inner > 0:
                    return self._floordiv(self.linear(atom.a), Linear({}, inner * c))
        return Linear({Binary("//", rest.to_expr(), Const(c)): 1})

    def _floormod(self, a: Linear, b: Linear) -> Linear:
        if not b.terms and b.const == 0:
            return Linear({Binary("%", a.to_expr(), b.to_expr()): 1})
        if not b.terms and b.const < 0:
            return Linear({Binary("%", a.to_expr(), b.to_expr()): 1})
        if not b.terms and not a.terms:
            return Linear({}, a.const % b.const)
        parts = self._split_by(a, b)
        if parts is not None and (not b.terms or self._positive(b)):
            _, rest = parts
            if not rest.terms and not b.terms:
                return Linear({}, rest.const % b.const)
            if self._within(rest, b):
                return rest
            if not b.terms:
                c = b.const
                lo, hi = self._linear_bounds(rest)
                if lo is not None and hi is not None and lo // c == hi // c:
                    return Linear(rest.terms, rest.const - lo // c * c)
                g = math.gcd(c, *(abs(k) for k in rest.terms.values()))
                if g > 1:
                    inner = Linear({x: k // g for x, k in rest.terms.items()}, rest.const // g)
                    shifted = self._floormod(inner, Linear({}, c // g)).scaled(g)
                    return shifted.add(Linear({}, rest.const % g))
            return Linear({Binary("%", rest.to_expr(), b.to_expr()): 1})
        return Linear({Binary("%", a.to_expr(), b.to_expr()): 1})

    def _within(self, rest: Linear, b: Linear) -> bool:
        """0 <= rest < b."""
        room = b.add(rest, -1)
        room.const -= 1
        return self._nonnegative(rest) and self._nonnegative(room)

    def _extremum(self, e: Binary) -> Linear:
        a, b = self.linear(e.a), self.linear(e.b)
        difference = a.add(b, -1)
        larger, smaller = self._nonnegative(difference), self._nonnegative(difference.scaled(-1))
        if larger or smaller:
            return (a if larger else b) if e.op == "max" else (b if larger else a)
        x, y = a.to_expr(), b.to_expr()
        if order_key(x) > order_key(y):
            x, y = y, x
        return Linear({Binary(e.op, x, y): 1})

    # -- bounds and proofs ---------------------------------------------------------------------------------------------

    def bounds(self, e: ExprLike) -> Bounds:
        """Inclusive constant bounds; None where there is none."""
        e = const(e)
        found = self._interval.get(e)
        if found is None:
            before, self._tainted = self._tainted, False
            if e.dtype.is_bool:
                found = (0, 1)
            elif e.dtype is i64:
                form = self.linear(e)
                found = self._linear_bounds(form)
                for fact in self._facts:  # a fact about the same sum
                    if fact.terms == form.terms and (found[0] is None or found[0] < form.const - fact.const):
                        found = (form.const - fact.const, found[1])
            else:
                known = as_int(e)
                found = (known, known)
                if isinstance(e, Load) and e.dtype.is_int and e.dtype.bits <= 32:
                    found = (int(e.dtype.min_value), int(e.dtype.max_value))
            if not self._tainted:
                self._interval[e] = found
            self._tainted |= before
        return found

    def _linear_bounds(self, form: Linear) -> Bounds:
        lo: int | None = form.const
        hi: int | None = form.const
        for atom, k in form.terms.items():
            a, b = self._atom_bounds(atom)
            if k < 0:
                a, b = b, a
            lo = None if lo is None or a is None else lo + k * a
            hi = None if hi is None or b is None else hi + k * b
        return lo, hi

    def _atom_bounds(self, atom: Expr) -> Bounds:
        if isinstance(atom, Var):
            return self._bounds.get(atom, (None, None))
        if atom in self._pending:
            return (None, None)  # not an atom, but what a proof came back to
        found = self._interval.get(atom)
        if found is not None:
            return found
        before, self._tainted = self._tainted, False
        found = self._structure_bounds(atom)
        if not self._tainted:
            self._interval[atom] = found
        self._tainted |= before
        return found

    def _structure_bounds(self, atom: Expr) -> Bounds:
        match atom:
            case Binary(op="*"):
                lo1, hi1 = self.bounds(atom.a)
                lo2, hi2 = self.bounds(atom.b)
                if lo1 is not None and lo2 is not None and lo1 >= 0 and lo2 >= 0:
                    return lo1 * lo2, None if hi1 is None or hi2 is None else hi1 * hi2
                if None in (lo1, hi1, lo2, hi2):
                    return None, None
                corners = [x * y for x in (lo1, hi1) for y in (lo2, hi2)]  # type: ignore[operator]
                return min(corners), max(corners)
            case Binary(op="//"):
                lo1, hi1 = self.bounds(atom.a)
                lo2, hi2 = self.bounds(atom.b)
                if lo2 is None or lo2 <= 0:
                    return None, None
                low = None if lo1 is None else (lo1 // lo2 if lo1 < 0 else (0 if hi2 is None else lo1 // hi2))
                high = None if hi1 is None else (hi1 // lo2 if hi1 >= 0 else (-1 if hi2 is None else hi1 // hi2))
                return low, high
            case Binary(op="%"):
                lo2, hi2 = self.bounds(atom.b)
                if lo2 is None or lo2 <= 0:
                    return None, None
                lo1, hi1 = self.bounds(atom.a)
                high = None if hi2 is None else hi2 - 1
                if lo1 is not None and lo1 >= 0 and hi1 is not None:
                    high = hi1 if high is None else min(high, hi1)
                return 0, high
            case Binary(op="min"):
                (lo1, hi1), (lo2, hi2) = self.bounds(atom.a), self.bounds(atom.b)
                highs = [h for h in (hi1, hi2) if h is not None]
                return (None if lo1 is None or lo2 is None else min(lo1, lo2)), (min(highs) if highs else None)
            case Binary(op="max"):
                (lo1, hi1), (lo2, hi2) = self.bounds(atom.a), self.bounds(atom.b)
                lows = [h for h in (lo1, lo2) if h is not None]
                return (max(lows) if lows else None), (None if hi1 is None or hi2 is None else max(hi1, hi2))
            case Select():
                (lo1, hi1), (lo2, hi2) = self.bounds(atom.a), self.bounds(atom.b)
                return (
                    None if lo1 is None or lo2 is None else min(lo1, lo2),
                    None if hi1 is None or hi2 is None else max(hi1, hi2),
                )
            case Cast() if atom.a.dtype.is_int or atom.a.dtype.is_bool:
                return self.bounds(atom.a)
        return None, None

    def _nonnegative(self, form: Linear) -> bool:
        """form >= 0, by constant bounds, by symbolic upper bounds of loop variables, or by one or two facts."""
        lo = self._linear_bounds(form)[0]
        if lo is not None and lo >= 0:
            return True
        hi = self._linear_bounds(form)[1]
        if hi is not None and hi < 0:
            return False
        reduced = self._eliminated(form)
        lo = self._linear_bounds(reduced)[0]
        if lo is not None and lo >= 0:
            return True
        for fact in self._facts:
            for scale in (1, *(c for c in {abs(k) for k in reduced.terms.values()} if c > 1)):
                rest = reduced.add(fact, -scale)
                lo = self._linear_bounds(rest)[0]
                if lo is not None and lo >= 0:
                    return True
                lo = self._linear_bounds(self._eliminated(rest))[0]
                if lo is not None and lo >= 0:
                    return True
        return False

    def _eliminated(self, form: Linear) -> Linear:
        """A lower bound of form: loop variables with symbolic extents replaced by the end that makes it least."""
        for _ in range(8):
            # Loop variables first: their ends may cancel what the bounds of products would only estimate.
            for atom, k in sorted(form.terms.items(), key=lambda t: not (isinstance(t[0], Var) and t[0] in self._upper)):
                if isinstance(atom, Var) and atom in self._upper:
                    rest = Linear({a: c for a, c in form.terms.items() if a is not atom}, form.const)
                    if k < 0:
                        top = self.linear(self._upper[atom])
                        rest = rest.add(top, k)
                        rest.const -= k
                    form = rest
                    break
                replaced = self._product_bound(atom, k)
                if replaced is not None:
                    rest = Linear({a: c for a, c in form.terms.items() if a is not atom}, form.const)
                    form = rest.add(replaced)
                    break
            else:
                return form
        return form

    def _product_bound(self, atom: Expr, k: int) -> Linear | None:
        """A lower bound of k * (loop variable * nonnegative factors)."""
        if not (isinstance(atom, Binary) and atom.op in ("*", "//", "%", "min")):
            return None
        if atom.op == "*":
            factors = factors_of(atom)
            for position, factor in enumerate(factors):
                if isinstance(factor, Var) and factor in self._upper:
                    others = factors[:position] + factors[position + 1 :]
                    if all((self.bounds(o)[0] or -1) >= 0 or self.bounds(o)[0] == 0 for o in others):
                        if k > 0:
                            return Linear({})
                        top = self.linear(self._upper[factor])
                        top = Linear(top.terms, top.const - 1)
                        return self._multiply(top, Linear({product(others): 1})).scaled(k)
            return None
        divisor = as_int(atom.b)
        if atom.op == "//" and divisor is not None and divisor > 0 and k % divisor == 0:
            # a - (c - 1) <= c * (a // c) <= a
            inner = self.linear(atom.a).scaled(k // divisor)
            return inner if k < 0 else Linear(inner.terms, inner.const - (k // divisor) * (divisor - 1))
        if atom.op == "//" and divisor is not None and divisor > 0 and divisor % abs(k) == 0 and abs(k) > 1:
            # c * (a // (d*c)) is within a // d - (c - 1) .. a // d
            inner = Linear({Binary("//", atom.a, Const(divisor // abs(k))): 1})
            return inner.scaled(-1) if k < 0 else Linear(inner.terms, inner.const - (k - 1))
        if atom.op == "%" and k < 0 and divisor is None and (self.bounds(atom.b)[0] or 0) > 0:
            top = self.linear(atom.b)
            return Linear(top.terms, top.const - 1).scaled(k)
        if atom.op == "min" and k < 0:
            return self.linear(atom.a).scaled(k)
        return None

    def can_prove(self, cond: ExprLike) -> bool:
        """True only if `cond` holds for all values within the bounds and facts."""
        cond = const(cond, boolean)
        if isinstance(cond, Binary) and cond.op == "and":
            return self.can_prove(cond.a) and self.can_prove(cond.b)
        if isinstance(cond, Binary) and cond.op == "or":
            return self.can_prove(cond.a) or self.can_prove(cond.b)
        return as_int(self.simplify(cond)) == 1

    def can_prove_equal(self, a: ExprLike, b: ExprLike) -> bool:
        """True only if a == b always."""
        x, y = const(a), const(b)
        if x is y:
            return True
        difference = self.linear(x).add(self.linear(y), -1)
        return not difference.terms and difference.const == 0

    def modular(self, e: ExprLike) -> tuple[int, int]:
        """(c, b) with e = b modulo c; c = 0 means that e is the constant b, c = 1 that nothing is known."""
        form = self.linear(const(e))
        divisor = 0
        for atom, k in form.terms.items():
            divisor = math.gcd(divisor, abs(k) * self._divisor_of(atom))
        return (0, form.const) if divisor == 0 else (divisor, form.const % divisor)

    def _divisor_of(self, atom: Expr) -> int:
        known = self._divisors.get(atom, 1)
        if isinstance(atom, Binary) and atom.op == "*":
            for factor in factors_of(atom):
                known = math.lcm(known, self._divisors.get(factor, 1))
        return known

    def symbolic_bounds(self, e: ExprLike, over: Iterable[Var]) -> tuple[Expr | None, Expr | None]:
        """Inclusive bounds of e as expressions free of the variables `over` (each bound by bind or bind_extent)."""
        variables = set(over)
        return self._end(self.linear(const(e)), variables, True), self._end(self.linear(const(e)), variables, False)

    def _end(self, form: Linear, over: set[Var], low: bool) -> Expr | None:
        result = Linear({}, form.const)
        for atom, k in form.terms.items():
            end = self._atom_end(atom, over, low == (k > 0))
            if end is None:
                return None
            result = result.add(self.linear(end), k)
        return result.to_expr()

    def _atom_end(self, atom: Expr, over: set[Var], low: bool) -> Expr | None:
        if not _mentions(atom, over):
            return atom
        if isinstance(atom, Var):
            lo, hi = self._bounds.get(atom, (None, None))
            if low:
                return None if lo is None else Const(lo)
            if atom in self._upper:
                return self.simplify(self._upper[atom] - 1)
            return None if hi is None else Const(hi)
        if isinstance(atom, Binary):
            if atom.op == "*":
                ends = []
                for factor in factors_of(atom):
                    if (self.bounds(factor)[0] or 0) < 0 or self.bounds(factor)[0] is None:
                        return None
                    end = self._end(self.linear(factor), over, low)
                    if end is None:
                        return None
                    ends.append(end)
                result: Expr = Const(1)
                for end in ends:
                    result = result * end
                return result
            if atom.op == "//" and not _mentions(atom.b, over) and (self.bounds(atom.b)[0] or 0) > 0:
                end = self._end(self.linear(atom.a), over, low)
                return None if end is None else end // atom.b
            if atom.op == "%" and not _mentions(atom.b, over) and (self.bounds(atom.b)[0] or 0) > 0:
                return Const(0) if low else atom.b - 1
            if atom.op in ("min", "max"):
                a, b = self._end(self.linear(atom.a), over, low), self._end(self.linear(atom.b), over, low)
                return None if a is None or b is None else binary(atom.op, a, b)
        lo, hi = self.bounds(atom)
        end_value = lo if low else hi
        return None if end_value is None else Const(end_value)


def _mentions(e: Expr, variables: set[Var]) -> bool:
    stack = [e]
    while stack:
        node = stack.pop()
        if node in variables:
            return True
        match node:
            case Binary():
                stack += (node.a, node.b)
            case Select():
                stack += (node.cond, node.a, node.b)
            case Unary() | Cast():
                stack.append(node.a)
            case Call():
                stack += node.args
            case Load():
                stack += node.indices
    return False
