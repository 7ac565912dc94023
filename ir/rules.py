"""Rule tables: named checks (verifiers) and named rewrites (simplifiers), applied in order and reported by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from everport.ir.errors import VerifyError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CheckRule(Generic[T]):
    """One invariant: `check(subject)` yields (message, node) for every breach."""

    name: str
    check: Callable[[T], Iterable[tuple[str, object]]]


def breaches(subject: T, rules: Iterable[CheckRule[T]]) -> Iterator[tuple[str, str, object]]:
    """Every breach of a table as (rule name, message, node)."""
    for rule in rules:
        for message, node in rule.check(subject):
            yield rule.name, message, node


def check_rules(subject: T, rules: Iterable[CheckRule[T]], what: str) -> None:
    """Raises a VerifyError that lists every breach (the first ten in full)."""
    found = list(breaches(subject, rules))
    if not found:
        return
    name, message, node = found[0]
    notes = [f"[{n}] {m}" for n, m, _ in found[1:10]]
    if len(found) > 10:
        notes.append(f"and {len(found) - 10} more")
    raise VerifyError(f"{what} breaks the rule [{name}]: {message}", node=node, notes=notes)
