"""Tables of checks: every breach is found, the first leads, the rest are notes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everport.ir.errors import VerifyError
from everport.ir.rules import CheckRule, breaches, check_rules
from everport.ir.span import Span
from everport.tir.expr import Var
from everport.tir.stmt import Evaluate


def _odd(numbers: list[int]) -> Iterator[tuple[str, object]]:
    for n in numbers:
        if n % 2:
            yield f"{n} is odd", None


def _negative(numbers: list[int]) -> Iterator[tuple[str, object]]:
    for n in numbers:
        if n < 0:
            yield f"{n} is negative", None


TABLE = (CheckRule("even", _odd), CheckRule("positive", _negative))


def test_a_valid_subject_passes():
    check_rules([2, 4], TABLE, "the list")
    check_rules([1, -3], (), "the list")


def test_breaches_come_in_the_order_of_the_table():
    assert list(breaches([3, -4, -5], TABLE)) == [
        ("even", "3 is odd", None),
        ("even", "-5 is odd", None),
        ("positive", "-4 is negative", None),
        ("positive", "-5 is negative", None),
    ]


def test_the_error_names_rule_and_subject_and_all_breaches():
    with pytest.raises(VerifyError) as caught:
        check_rules([3, -4], TABLE, "list 'a'")
    assert caught.value.render() == "list 'a' breaks the rule [even]: 3 is odd\n  note: [positive] -4 is negative"


def test_many_breaches_are_counted():
    with pytest.raises(VerifyError) as caught:
        check_rules([2 * k + 1 for k in range(25)], TABLE, "it")
    lines = caught.value.render().splitlines()
    assert len(lines) == 1 + 9 + 1
    assert lines[-1] == "  note: and 15 more"


def test_ten_breaches_are_shown_without_a_count():
    with pytest.raises(VerifyError) as caught:
        check_rules([2 * k + 1 for k in range(10)], TABLE, "it")
    assert "more" not in caught.value.render()
    assert "19 is odd" in caught.value.render()


def test_the_first_breach_lends_its_node():
    node = Evaluate(Var("x"), Span("m.ir", 4))
    rule: CheckRule[None] = CheckRule("no effects", lambda _: [("an effect", node)])
    with pytest.raises(VerifyError) as caught:
        check_rules(None, (rule,), "it")
    assert caught.value.node is node
    assert "at m.ir:4" in caught.value.render()
