"""Walks, rewriting and structural comparison over IR nodes, none of them recursive.

A node is an instance of a class with `NODE_FIELDS`: the names of the fields that hold children (a node, None, a plain
value, or a tuple of these, nested). Everything else (names, numbers, types) is plain data. A class may list names in
`NODE_IGNORED` (spans) that comparison skips.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import numpy as np


class Node:
    """Base class of IR nodes; subclasses are frozen dataclasses with slots and identity equality."""

    __slots__ = ()
    NODE_FIELDS: tuple[str, ...] = ()
    NODE_IGNORED: tuple[str, ...] = ("span",)

    def with_fields(self, **changes: Any) -> Any:
        """A copy with the named fields changed; the same object if nothing changed."""
        if all(getattr(self, name) is value for name, value in changes.items()):
            return self
        values = {name: getattr(self, name) for name in fields_of(type(self))}  # type: ignore[arg-type]
        values.update(changes)
        return type(self)(**values)


@cache
def fields_of(cls: type) -> tuple[str, ...]:
    """The constructor fields of a node class in order: its dataclass fields, or the `FIELDS` it names."""
    named = getattr(cls, "FIELDS", None)
    return tuple(cls.__dataclass_fields__) if named is None else named  # type: ignore[attr-defined]


def children(node: Node) -> Iterator[Node]:
    """The child nodes in field order, tuples flattened."""
    for name in node.NODE_FIELDS:
        value = getattr(node, name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple) and value:
            yield from _in_tuple(value)


def _in_tuple(values: tuple) -> Iterator[Node]:
    for value in values:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple) and value:
            yield from _in_tuple(value)


def post_order(root: Node) -> Iterator[Node]:
    """Every node once, children before parents. Shared nodes are visited once."""
    seen: set[int] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, done = stack.pop()
        if done:
            yield node
            continue
        if id(node) in seen:
            continue
        seen.add(id(node))
        stack.append((node, True))
        stack.extend((child, False) for child in reversed(tuple(children(node))) if id(child) not in seen)


def pre_order(root: Node) -> Iterator[Node]:
    """Every node once, parents before children, in reading order."""
    seen: set[int] = set()
    stack: list[Node] = [root]
    while stack:
        node = stack.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        stack.extend(reversed(tuple(children(node))))


def rewrite(root: Node, post: Callable[[Node], Node | None], pre: Callable[[Node], Node | None] | None = None) -> Any:
    """Rebuilds a tree bottom-up. `post(node)` sees a node whose children are already rewritten and returns its replacement
    (None or the node itself: unchanged). `pre(node)` may replace a node before its children are looked at; what it returns
    is taken as it is. Unchanged parts keep their identity, shared parts are rewritten once.
    """
    memo: dict[int, Node] = {}
    keep: list[Node] = []  # ids stay valid while their nodes are alive
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if id(node) in memo:
            continue
        if not ready:
            if pre is not None:
                replaced = pre(node)
                if replaced is not None:
                    memo[id(node)] = replaced
                    keep.append(node)
                    continue
            stack.append((node, True))
            stack.extend((child, False) for child in reversed(tuple(children(node))) if id(child) not in memo)
            continue
        changes = {}
        for name in node.NODE_FIELDS:
            value = getattr(node, name)
            new = _mapped(value, memo)
            if new is not value:
                changes[name] = new
        rebuilt = node.with_fields(**changes) if changes else node
        result = post(rebuilt)
        memo[id(node)] = rebuilt if result is None else result
        keep.append(node)
    return memo[id(root)]


def _mapped(value: Any, memo: dict[int, Node]) -> Any:
    if isinstance(value, Node):
        return memo[id(value)]
    if isinstance(value, tuple) and value:
        new = tuple(_mapped(v, memo) for v in value)
        return value if all(a is b for a, b in zip(new, value, strict=True)) else new
    return value


def structural_equal(a: Any, b: Any) -> bool:
    """True if two IR trees are the same up to the names of what they define.

    Nodes with `IS_BINDER = True` (variables, buffers) are matched in order of first meeting: each must always meet the same
    partner. A free variable maps by first meeting too; pass the whole function to compare closed terms. Arrays and floats
    compare by bits.
    """
    forward: dict[int, Any] = {}
    backward: dict[int, Any] = {}
    stack: list[tuple[Any, Any]] = [(a, b)]
    seen: set[tuple[int, int]] = set()
    while stack:
        x, y = stack.pop()
        if type(x) is not type(y):
            return False
        if isinstance(x, Node):
            if getattr(x, "IS_BINDER", False):
                if id(x) in forward or id(y) in backward:
                    if forward.get(id(x)) is not y or backward.get(id(y)) is not x:
                        return False
                    continue
                forward[id(x)] = y
                backward[id(y)] = x
                stack.extend(_field_pairs(x, y, skip=("name",)))
                continue
            if x is y and id(x) in forward:
                continue
            if (id(x), id(y)) in seen:
                continue
            seen.add((id(x), id(y)))
            stack.extend(_field_pairs(x, y))
        elif isinstance(x, (tuple, list)):
            if len(x) != len(y):
                return False
            stack.extend(zip(reversed(x), reversed(y), strict=True))
        elif isinstance(x, dict):
            if list(x) != list(y):
                return False
            stack.extend((x[k], y[k]) for k in reversed(list(x)))
        elif isinstance(x, np.ndarray):
            if x.dtype != y.dtype or x.shape != y.shape or x.tobytes() != y.tobytes():
                return False
        elif isinstance(x, float):
            if np.float64(x).tobytes() != np.float64(y).tobytes():
                return False
        elif x != y:
            return False
    return True


def _compared(node: Node, skip: tuple[str, ...]) -> list[str]:
    names = fields_of(type(node))  # type: ignore[arg-type]
    return [n for n in names if n not in node.NODE_IGNORED and n not in skip]


def _field_pairs(x: Node, y: Node, skip: tuple[str, ...] = ()) -> list[tuple[Any, Any]]:
    return [(getattr(x, n), getattr(y, n)) for n in reversed(_compared(x, skip))]


def structural_hash(root: Any) -> str:
    """A hex digest equal for structurally equal trees, stable between processes; names of what is defined don't count.

    Nodes with `IS_INTERNED = True` are hashed once and referred to by number after that: equal ones in one tree are one
    object, so the numbers depend on structure alone, and a shared expression costs its size and not its number of paths.
    """
    digest = hashlib.sha256()
    numbers: dict[int, int] = {}
    stack: list[Any] = [root]
    while stack:
        x = stack.pop()
        if isinstance(x, Node):
            binder = getattr(x, "IS_BINDER", False)
            if id(x) in numbers:
                digest.update(b"#%d;" % numbers[id(x)])
                continue
            if binder or (x.NODE_FIELDS and getattr(x, "IS_INTERNED", False)):
                numbers[id(x)] = len(numbers)
            digest.update(type(x).__name__.encode() + b"(")
            stack.extend(getattr(x, n) for n in reversed(_compared(x, ("name",) if binder else ())))
        elif isinstance(x, (tuple, list)):
            digest.update(b"[%d" % len(x))
            stack.extend(reversed(x))
        elif isinstance(x, dict):
            digest.update(b"{%d" % len(x))
            for key in reversed(list(x)):
                stack.append(x[key])
                stack.append(key)
        elif isinstance(x, np.ndarray):
            digest.update(f"array{x.dtype}{x.shape}".encode() + hashlib.sha256(x.tobytes()).digest())
        elif isinstance(x, float):
            digest.update(b"f" + np.float64(x).tobytes())
        else:
            digest.update(f"{type(x).__name__}:{x!r};".encode())
    return digest.hexdigest()
