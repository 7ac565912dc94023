"""Walks, rewriting, structural equality and hash: order, identity, sharing, depth."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from everport.ir.dtype import f32, i32, i64
from everport.ir.node import (
    Node,
    children,
    fields_of,
    post_order,
    pre_order,
    rewrite,
    structural_equal,
    structural_hash,
)
from everport.ir.span import Span
from everport.tir.buffer import Buffer
from everport.tir.expr import Binary, Const, Expr, Load, Var, lt, select
from everport.tir.func import PrimFunc
from everport.tir.stmt import For, Seq, Stmt, Store

DEEP = 100_000


@dataclass(frozen=True, slots=True, eq=False)
class Leaf(Node):
    value: Any
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Branch(Node):
    label: str
    left: Any
    right: Any = ()
    span: Span | None = None
    NODE_FIELDS = ("left", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Name(Node):
    name: str
    kind: Any = None
    NODE_FIELDS = ("kind",)
    IS_BINDER = True


def chain(depth: int, end: Node, label: str = "") -> Node:
    node = end
    for _ in range(depth):
        node = Branch(label, node)
    return node


# Walks


def test_children_flatten_tuples_and_skip_plain_values():
    a, b, c, d = (Leaf(k) for k in range(4))
    assert list(children(Branch("x", a, (b, ("text", (c, 3), None), d)))) == [a, b, c, d]
    assert list(children(Branch("x", None, "plain"))) == []
    assert list(children(a)) == []


def test_orders():
    a, b, c = Leaf("a"), Leaf("b"), Leaf("c")
    inner = Branch("inner", a, (b,))
    root = Branch("root", inner, c)
    assert list(post_order(root)) == [a, b, inner, c, root]
    assert list(pre_order(root)) == [root, inner, a, b, c]


def test_shared_nodes_are_visited_once():
    shared = Branch("s", Leaf(0))
    root = Branch("root", shared, (shared, Branch("t", shared)))
    assert len(list(post_order(root))) == len(list(pre_order(root))) == 4
    assert [n.label for n in post_order(root) if isinstance(n, Branch)] == ["s", "t", "root"]


def test_fields_are_those_of_the_constructor():
    assert fields_of(Branch) == ("label", "left", "right", "span")
    assert fields_of(Binary) == ("op", "a", "b")


def test_with_fields_keeps_identity():
    a = Leaf(1)
    node = Branch("x", a)
    assert node.with_fields(left=a, label="x") is node
    changed = node.with_fields(label="y")
    assert (changed.label, changed.left, node.label) == ("y", a, "x")


# Rewriting


def increment(n: Node) -> Node | None:
    return n.with_fields(value=n.value + 1) if isinstance(n, Leaf) else None


def test_rewrite_goes_bottom_up_and_keeps_what_is_unchanged():
    left, right = Branch("left", Leaf(1)), Branch("right", Leaf("kept"), (Leaf(2), "plain"))
    root = Branch("root", left, (right, 5))
    seen: list[str] = []

    def post(n: Node) -> Node | None:
        if isinstance(n, Branch):
            seen.append(n.label)
            return None
        assert isinstance(n, Leaf)
        return Leaf(9) if n.value == 1 else n

    new = rewrite(root, post)
    assert seen == ["left", "right", "root"]
    assert new is not root
    assert new.left.left.value == 9
    assert new.right[0] is right
    assert new.right[1] == 5
    assert root.left is left


def test_rewrite_without_changes_returns_the_same_object():
    root = Branch("root", Branch("a", Leaf(1)), (Leaf(2), (Leaf(3), ())))
    assert rewrite(root, lambda n: None) is root
    assert rewrite(root, lambda n: n) is root


def test_rewrite_keeps_sharing_and_calls_once():
    shared = Branch("s", Leaf(0))
    calls: list[Node] = []

    def post(n: Node) -> Node | None:
        calls.append(n)
        return increment(n)

    new = rewrite(Branch("root", shared, (shared, shared)), post)
    assert new.left is new.right[0] is new.right[1]
    assert new.left.left.value == 1
    assert len(calls) == 3


def test_what_pre_returns_is_final():
    hidden = Branch("hidden", Leaf(0))
    root = Branch("root", hidden, (Leaf(10),))
    new = rewrite(root, increment, lambda n: Leaf(100) if n is hidden else None)
    assert (new.left.value, new.right[0].value) == (100, 11)
    same = rewrite(root, increment, lambda n: n if n is hidden else None)
    assert same.left is hidden


def test_a_replacement_is_not_rewritten_again():
    new = rewrite(Branch("root", Leaf(0)), lambda n: Branch("wrap", n) if isinstance(n, Leaf) else None)
    assert isinstance(new.left, Branch)
    assert isinstance(new.left.left, Leaf)


def test_a_rewritten_definition_is_met_by_all_its_uses():
    n, i = Var("n"), Var("i")
    buffer = Buffer("a", (n,), f32)
    func = PrimFunc("f", (buffer, n), For(i, n, Store(buffer, (i,), buffer[n - 1 - i])))
    m = Var("m")
    new = rewrite(func, lambda x: m if x is n else None)
    assert new.params[1] is m
    store = new.body.body
    assert new.params[0] is store.buffer is store.value.buffer
    assert new.params[0] is not buffer
    assert structural_equal(new, func)


# Depth


def test_deep_trees_of_statements():
    root = chain(DEEP, Leaf(0))
    assert sum(1 for _ in pre_order(root)) == DEEP + 1
    assert next(post_order(root)).value == 0
    new = rewrite(root, increment)
    assert not structural_equal(new, root)
    assert structural_hash(new) == structural_hash(chain(DEEP, Leaf(1)))


def test_deep_expressions_are_made_walked_and_freed():
    x, y = Var("x"), Var("y")
    root: Expr = x
    for _ in range(DEEP):
        root = Binary("+", root, x)
    renamed = rewrite(root, lambda n: y if n is x else None)
    assert structural_equal(root, renamed)
    del root, renamed  # the intern table holds nodes weakly: freeing a deep one must not recurse


def test_shared_expressions_cost_their_size_not_their_paths():
    def doubled(x: Var) -> Expr:
        e: Expr = x
        for _ in range(200):
            e = Binary("*", e, e)
        return e

    a, b = doubled(Var("a")), doubled(Var("b"))
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    assert len(list(post_order(a))) == 201


# Equality and hash


def loop(name: str = "f", i: str = "i", buffer: str = "a", span: Span | None = None, **changes: Any) -> PrimFunc:
    """for i: a[i] = a[i] * 2 + 1, with parts to change."""
    n, v = Var(changes.get("symbol", "n")), Var(i)
    a = Buffer(buffer, (n,), f32, changes.get("scope", "global"), changes.get("align", 0))
    value = a[v] * Const(changes.get("scale", 2.0), f32) + Const(1.0, f32)
    body = For(v, n, Store(a, (v,), value, span=span), changes.get("kind", "serial"), span=span)
    return PrimFunc(name, (a, n), body, changes.get("attrs", ()), span)


def same(a: Any, b: Any) -> bool:
    """Equality, after proving that it is symmetric and that the hashes keep its promise."""
    equal = structural_equal(a, b)
    assert structural_equal(b, a) == equal
    assert (structural_hash(a) == structural_hash(b)) == equal
    return equal


def test_names_and_spans_do_not_count():
    assert same(loop(), loop("g", "j", "b", Span("m.ir", 1), symbol="m"))


@pytest.mark.parametrize(
    "changes",
    [
        {"scale": 3.0},
        {"scale": float("nan")},
        {"kind": "parallel"},
        {"scope": "shared"},
        {"align": 64},
        {"attrs": (("num_outputs", 2),)},
        {"attrs": (("num_outputs", True),)},
    ],
    ids=str,
)
def test_everything_else_counts(changes: dict[str, Any]):
    assert not same(loop(), loop(**changes))
    assert same(loop(**changes), loop(**changes))


def test_zero_and_nan_compare_by_bits():
    nan = float("nan")
    assert same(Const(nan, f32), Const(nan, f32))
    assert not same(Const(0.0, f32), Const(-0.0, f32))
    assert not same(Const(1, i64), Const(1, i32))
    assert not same(Leaf(1), Leaf(1.0))
    assert not same(Leaf(1), Leaf(True))
    assert not same(Leaf("1"), Leaf(1))
    assert not same(Leaf(None), Leaf(()))


def test_variables_match_one_to_one():
    x, y, z = Var("x"), Var("y"), Var("z")
    assert same(Binary("+", x, y), Binary("+", y, z))
    assert same(Binary("+", x, y), Binary("+", y, x))
    assert same(Binary("+", x, x), Binary("+", z, z))
    assert not same(Binary("+", x, x), Binary("+", x, y))
    assert not same(Binary("+", x, y), Binary("+", x, x))
    assert not same(Binary("-", Binary("+", x, y), x), Binary("-", Binary("+", x, y), y))
    assert not same(x, Var("x", i32))


def test_a_variable_that_stands_for_itself_may_not_be_taken():
    x, y = Var("x"), Var("y")
    assert not same(
        Seq((For(x, Const(3), Seq(())), For(x, y, Seq(())))), Seq((For(x, Const(3), Seq(())), For(x, x, Seq(()))))
    )


def test_binders_compare_by_what_they_hold():
    assert same(Name("a", Leaf(1)), Name("b", Leaf(1)))
    assert not same(Name("a", Leaf(1)), Name("a", Leaf(2)))
    a, b = Name("a"), Name("b")
    assert not same(Branch("", a, a), Branch("", a, b))


def test_buffers_with_shapes_that_depend_on_variables():
    def copy(crossed: bool) -> Stmt:
        n, m, i = Var("n"), Var("m"), Var("i")
        a, b = Buffer("a", (n,), f32), Buffer("b", (m,), f32)
        return For(i, n, Store(b, (i,), (b if crossed else a)[i]))

    assert same(copy(False), copy(False))
    assert not same(copy(True), copy(False))


def test_arrays_compare_by_type_shape_and_bits():
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert same(Leaf(a), Leaf(a.copy()))
    assert same(Leaf(a), Leaf(np.asfortranarray(a)))
    assert not same(Leaf(a), Leaf(a.reshape(3, 2)))
    assert not same(Leaf(a), Leaf(a.astype(np.float64)))
    assert not same(Leaf(a), Leaf(a + 1))
    assert not same(Leaf(np.float32([0.0])), Leaf(np.float32([-0.0])))
    assert same(Leaf(np.float32([np.nan])), Leaf(np.float32([np.nan])))


def test_containers_keep_length_order_and_kind():
    assert same(Leaf({"a": 1, "b": (2, 3)}), Leaf({"a": 1, "b": (2, 3)}))
    assert not same(Leaf({"a": 1, "b": 2}), Leaf({"b": 2, "a": 1}))
    assert not same(Leaf((1, (2, 3))), Leaf((1, 2, 3)))
    assert not same(Leaf(((), 1)), Leaf((1, ())))
    assert not same(Branch("", Leaf(1), ()), Branch("", Leaf(1), None))
    assert not same(Leaf(1), Branch("", 1))


def test_sharing_of_plain_nodes_does_not_count():
    leaf = Leaf(1)
    assert same(Branch("", leaf, leaf), Branch("", Leaf(1), Leaf(1)))


def test_the_hash_is_the_same_in_another_process():
    code = (
        "from everport.ir.dtype import f32\n"
        "from everport.ir.node import structural_hash\n"
        "from everport.tir.expr import Binary, Const, Var\n"
        "x = Var('elsewhere', f32)\n"
        "e = Binary('*', x, Const(0.5, f32))\n"
        "print(structural_hash(Binary('+', e, e)))"
    )
    x = Var("x", f32)
    e = Binary("*", x, Const(0.5, f32))
    paths = [p for p in sys.path if p]
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(paths)}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert told.stdout.strip() == structural_hash(Binary("+", e, e))


# Random expressions: a tree of choices is built over two sets of variables

Plan = tuple
LEAVES = st.one_of(
    st.tuples(st.just("var"), st.integers(0, 2)),
    st.tuples(st.just("const"), st.integers(-2, 2)),
)
PLANS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["+", "*", "min"]), inner, inner),
        st.tuples(st.just("load"), inner),
        st.tuples(st.just("select"), inner, inner, inner),
    ),
    max_leaves=12,
)


def build(plan: Plan, variables: list[Var], buffer: Buffer) -> Expr:
    match plan:
        case ("var", k):
            return variables[k]
        case ("const", value):
            return Const(value)
        case ("load", inner):
            return Load(buffer, (build(inner, variables, buffer),))
        case ("select", c, a, b):
            parts = [build(p, variables, buffer) for p in (c, a, b)]
            return select(lt(parts[0], 0), parts[1], parts[2])
        case (op, a, b):
            return Binary(op, build(a, variables, buffer), build(b, variables, buffer))
    raise AssertionError(plan)


def fresh() -> Callable[[Plan], Expr]:
    variables = [Var(f"v{k}") for k in range(3)]
    buffer = Buffer("a", (8,), i64)
    return lambda plan: build(plan, variables, buffer)


def canonical(e: Expr) -> str:
    """The expression as text, its variables numbered in order of first meeting: equality by another road."""
    numbers: dict[int, int] = {}

    def text(x: Any) -> str:
        if isinstance(x, Var | Buffer):
            return f"{type(x).__name__}{numbers.setdefault(id(x), len(numbers))}"
        if isinstance(x, tuple):
            return f"({' '.join(map(text, x))})"
        if isinstance(x, Node):
            return f"{type(x).__name__}({' '.join(text(getattr(x, f)) for f in fields_of(type(x)))})"
        return repr(x)

    return text(e)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(PLANS)
def test_renamed_expressions_are_equal(plan: Plan):
    assert same(fresh()(plan), fresh()(plan))


@settings(max_examples=300, derandomize=True, deadline=None)
@given(PLANS, PLANS)
def test_equality_agrees_with_numbered_text(first: Plan, second: Plan):
    a, b = fresh()(first), fresh()(second)
    assert same(a, b) == (canonical(a) == canonical(b))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(PLANS, st.data())
def test_swapping_one_variable_agrees_with_numbered_text(plan: Plan, data: st.DataObject):
    make = fresh()
    a = make(plan)
    leaves = [n for n in post_order(a) if isinstance(n, Var)]
    if leaves:
        old, new = data.draw(st.sampled_from(leaves)), make(("var", data.draw(st.integers(0, 2))))
        b = rewrite(a, lambda n: new if n is old else None)
        assert same(a, b) == (canonical(a) == canonical(b))


@settings(max_examples=200, derandomize=True, deadline=None)
@given(PLANS)
def test_walks_meet_every_node_once_and_in_order(plan: Plan):
    root = fresh()(plan)
    post, pre = list(post_order(root)), list(pre_order(root))
    assert len({id(n) for n in post}) == len(post)
    assert {id(n) for n in post} == {id(n) for n in pre}
    place = {id(n): k for k, n in enumerate(post)}
    assert all(place[id(c)] < place[id(n)] for n in post for c in children(n))
    assert post[-1] is root is pre[0]
    assert rewrite(root, lambda n: None) is root
