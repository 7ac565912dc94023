"""Linear forms: a constant and integer multiples of atoms (variables, products, quotients, ...), the base of canonical sums."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

from everport.ir.dtype import i64
from everport.tir.expr import Binary, Const, Expr, format_expr

_keys: weakref.WeakKeyDictionary[Expr, str] = weakref.WeakKeyDictionary()


def order_key(e: Expr) -> str:
    """A text by which atoms are ordered: equal on every run."""
    key = _keys.get(e)
    if key is None:
        key = format_expr(e)
        _keys[e] = key
    return key


@dataclass(slots=True)
class Linear:
    """sum(coefficient * atom) + const over i64."""

    terms: dict[Expr, int]
    const: int = 0

    def add(self, other: Linear, scale: int = 1) -> Linear:
        terms = dict(self.terms)
        for atom, coefficient in other.terms.items():
            total = terms.get(atom, 0) + scale * coefficient
            if total:
                terms[atom] = total
            else:
                terms.pop(atom, None)
        return Linear(terms, self.const + scale * other.const)

    def scaled(self, factor: int) -> Linear:
        if factor == 0:
            return Linear({})
        return Linear({a: c * factor for a, c in self.terms.items()}, self.const * factor)

    def to_expr(self) -> Expr:
        """The canonical sum: atoms in key order, positive terms first, the constant last."""
        items = sorted(self.terms.items(), key=lambda t: (t[1] < 0, order_key(t[0])))
        result: Expr | None = None
        for atom, coefficient in items:
            if result is None:
                result = atom if coefficient == 1 else Binary("*", atom, Const(coefficient))
            else:
                size = abs(coefficient)
                term = atom if size == 1 else Binary("*", atom, Const(size))
                result = Binary("+" if coefficient > 0 else "-", result, term)
        if result is None:
            return Const(self.const, i64)
        if self.const:
            result = Binary("+" if self.const > 0 else "-", result, Const(abs(self.const)))
        return result


def factors_of(atom: Expr) -> list[Expr]:
    """The factors of a canonical product atom."""
    found: list[Expr] = []
    while isinstance(atom, Binary) and atom.op == "*":
        found.append(atom.b)
        atom = atom.a
    found.append(atom)
    return found[::-1]


def product(factors: list[Expr]) -> Expr:
    """The canonical product atom of factors."""
    ordered = sorted(factors, key=order_key)
    result = ordered[0]
    for factor in ordered[1:]:
        result = Binary("*", result, factor)
    return result
