"""Errors and spans: what a person sees, and that an error survives the way between processes."""

from __future__ import annotations

import pickle

import pytest

from everport.ir.errors import CompileError, ParseError, ScheduleError, UnsupportedError, VerifyError
from everport.ir.span import Span
from everport.tir.expr import Var
from everport.tir.stmt import Evaluate


def test_every_part_is_laid_out_in_order():
    error = CompileError(
        "the loop 'k' carries a sum",
        span=Span("model.ir", 3, 4),
        excerpt="for k in serial(8):\n    c[0] = c[0] + a[k]",
        caret=(1, 11, 4),
        notes=("c is written by 'C'", "k is a reduce iterator"),
        hint="decompose the reduction first",
    )
    assert str(error) == error.render()
    assert error.render().splitlines() == [
        "the loop 'k' carries a sum",
        "  at model.ir:3:5",
        "  | for k in serial(8):",
        "  |     c[0] = c[0] + a[k]",
        "  |            ^^^^",
        "  note: c is written by 'C'",
        "  note: k is a reduce iterator",
        "  hint: decompose the reduction first",
    ]


def test_a_bare_message_stays_one_line():
    assert CompileError("nothing to compile").render() == "nothing to compile"


def test_the_caret_is_seen_even_without_width():
    lines = CompileError("end of text", excerpt="f(", caret=(0, 2, 0)).render().splitlines()
    assert lines[-2:] == ["  | f(", "  |   ^"]


def test_a_node_lends_its_span_and_text():
    span = Span("model.onnx", node="/layer1/conv", op="Conv", index=7)
    error = CompileError("no", node=Evaluate(Var("x"), span))
    assert error.span is span
    assert error.render() == "no\n  at model.onnx: node '/layer1/conv' (#7) of type Conv\n  | Evaluate"
    other = Span("here")
    assert CompileError("no", node=Evaluate(Var("x"), span), span=other).span is other


def test_long_nodes_are_cut():
    class Long:
        def __str__(self) -> str:
            return "\n".join(f"line {k}" for k in range(40))

    lines = CompileError("no", node=Long()).render().splitlines()
    assert lines[1] == "  | line 0"
    assert lines[-1] == "  | ... (28 more lines)"
    assert len(lines) == 14


def test_notes_may_be_added_on_the_way_up():
    error = VerifyError("bad", notes=["one"])
    error.notes = (*error.notes, "in pass fuse")
    assert error.render().splitlines()[1:] == ["  note: one", "  note: in pass fuse"]


@pytest.mark.parametrize("kind", [UnsupportedError, VerifyError, ScheduleError, ParseError])
def test_kinds_are_compile_errors_and_can_be_sent(kind: type[CompileError]):
    error = kind("no", span=Span("a.onnx", node="n"), excerpt="x", caret=(0, 0, 1), hint="do", notes=("a",))
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is kind
    assert isinstance(back, CompileError)
    assert back.render() == error.render()
    assert back.span == error.span


@pytest.mark.parametrize(
    ("span", "text"),
    [
        (Span("m.ir"), "m.ir"),
        (Span("m.ir", 12), "m.ir:12"),
        (Span("m.ir", 12, 0), "m.ir:12:1"),
        (Span("m.onnx", node="add_1"), "m.onnx: node 'add_1'"),
        (Span("m.onnx", node="add_1", op="Add"), "m.onnx: node 'add_1' of type Add"),
        (Span("m.onnx", node="", op="Add", index=0), "m.onnx: unnamed node (#0) of type Add"),
        (Span("m.onnx", op="Add"), "m.onnx: unnamed node of type Add"),
    ],
)
def test_spans_read_well(span: Span, text: str):
    assert str(span) == text


def test_spans_are_values():
    assert Span("a", 1) == Span("a", 1)
    assert len({Span("a", 1), Span("a", 1), Span("a", 2)}) == 2
