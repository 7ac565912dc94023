"""ONNX's node tests end exactly as tests/ops/expectations.txt says."""

from __future__ import annotations

import onnx
import pytest
from ops.node_suite import cases, expectations, expected_version, run_named
from ops.operators_page import PAGE, page

PARTS = 40
same_onnx = pytest.mark.skipif(onnx.__version__ != expected_version(), reason=f"the expectations are of onnx {expected_version()}")


@same_onnx
def test_every_test_has_an_expectation() -> None:
    assert sorted(cases()) == sorted(expectations())


def test_nothing_is_expected_to_be_wrong() -> None:
    ends = list(expectations().values())
    assert {end.partition(":")[0] for end in ends} == {"pass", "refused"}
    assert sum(end == "pass" for end in ends) >= 1000


@same_onnx
@pytest.mark.parametrize("part", range(PARTS))
def test_ends(part: int) -> None:
    wanted = {n: e for k, (n, e) in enumerate(sorted(expectations().items())) if k % PARTS == part}
    ends = run_named(list(wanted))
    differing = [f"{n}: {ends[n]}\n    expected {e}" for n, e in wanted.items() if ends[n] != e]
    assert not differing, "\n".join(differing)


@same_onnx
def test_the_page_of_operators_is_current() -> None:
    """Else run `python tests/ops/operators_page.py`."""
    assert PAGE.read_text() == page()
