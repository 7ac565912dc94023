"""The pass runner (verify, time, dump, diff) and the reading of pass lists."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from everport.ir.errors import CompileError, VerifyError
from everport.ir.module import IRModule
from everport.ir.passes import Pass, PassRunner, parse_passes


@dataclass(frozen=True)
class Count(Pass):
    """Adds to the module's counter."""

    by: int = 1
    mode: str = "up"
    ratio: float = 0.5
    sizes: tuple[int, ...] = (1,)
    exact: bool = False
    limit: int | None = None

    name = "count"

    def __call__(self, module: IRModule) -> IRModule:
        return module.with_attrs(n=module.attrs["n"] + self.by)


@dataclass(frozen=True)
class Nothing(Pass):
    name = "nothing"

    def __call__(self, module: IRModule) -> IRModule:
        return module


@dataclass(frozen=True)
class Fails(Pass):
    name = "fails"

    def __call__(self, module: IRModule) -> IRModule:
        raise CompileError("a convolution with five dimensions", notes=("first",))


@dataclass(frozen=True)
class Picky(Pass):
    names: tuple[str, ...] = field(default_factory=tuple)
    name = "picky"

    def __post_init__(self) -> None:
        if not isinstance(self.names, tuple):
            raise ValueError("names must be a tuple")

    def __call__(self, module: IRModule) -> IRModule:
        return module


TABLE: dict[str, type[Pass]] = {p.name: p for p in (Count, Nothing, Fails, Picky)}
START = IRModule({}, {"n": 0})


def render(module: IRModule) -> str:
    return f"begin\nn = {module.attrs['n']}\nend\n"


def small(module: IRModule) -> None:
    if module.attrs["n"] > 3:
        raise VerifyError(f"n is {module.attrs['n']}")


def test_passes_run_in_order_and_are_recorded():
    told: list[str] = []
    runner = PassRunner(on_pass=told.append)
    result = runner.run(START, [Count(2), Nothing(), Count()])
    assert result.attrs["n"] == 3
    assert told == ["count", "nothing", "count"]
    assert [(r.name, r.changed) for r in runner.records] == [("count", True), ("nothing", False), ("count", True)]
    assert all(r.seconds >= 0 for r in runner.records)


def test_no_passes_give_the_module_itself():
    assert PassRunner().run(START, []) is START


def test_the_verifier_names_the_pass_at_fault():
    runner = PassRunner(verify=small)
    with pytest.raises(VerifyError) as caught:
        runner.run(START, [Count(2), Count(3), Count(4)])
    text = caught.value.render()
    assert text == "n is 5\n  note: the module was valid before pass count(by=3) and is not after it"


def test_the_verifier_is_spared_where_nothing_changed():
    seen: list[int] = []
    runner = PassRunner(verify=lambda m: seen.append(m.attrs["n"]))
    runner.run(START, [Nothing(), Count(), Nothing()])
    assert seen == [1]


def test_an_error_of_a_pass_names_the_pass():
    with pytest.raises(CompileError) as caught:
        PassRunner().run(START, [Nothing(), Fails()])
    assert caught.value.notes == ("first", "in pass fails")


def test_dumps_are_numbered(tmp_path: Path):
    folder = tmp_path / "a" / "b"
    PassRunner(render=render, dump_dir=folder).run(START, [Count(), Nothing(), Count(5)])
    found = sorted(folder.iterdir())
    assert [p.name for p in found] == ["01_count.txt", "02_nothing.txt", "03_count.txt"]
    assert [p.read_text() for p in found] == [render(START.with_attrs(n=n)) for n in (1, 1, 6)]


def test_diffs_show_what_a_pass_changed():
    diffs: list[tuple[str, str]] = []
    PassRunner(render=render, on_diff=lambda *d: diffs.append(d)).run(START, [Nothing(), Count(5)])
    [(step, diff)] = diffs
    assert step == "count(by=5)"
    assert diff.splitlines() == [
        "--- before", "+++ after count(by=5)", "@@ -1,3 +1,3 @@", " begin", "-n = 0", "+n = 5", " end",
    ]  # fmt: skip


def test_texts_need_a_printer(tmp_path: Path):
    for wanted in ({"dump_dir": tmp_path}, {"on_diff": lambda *_: None}):
        with pytest.raises(ValueError, match="give render too"):
            PassRunner(**wanted)  # type: ignore[arg-type]


def test_a_pass_without_a_body_says_so():
    @dataclass(frozen=True)
    class Empty(Pass):
        name = "empty"

    with pytest.raises(TypeError, match="Empty does not implement __call__"):
        PassRunner().run(START, [Empty()])


def test_printing_leaves_defaults_out():
    assert str(Nothing()) == "nothing"
    assert str(Count()) == "count"
    assert str(Count(3, mode="down")) == "count(by=3, mode='down')"


@pytest.mark.parametrize(
    "step",
    [
        Nothing(),
        Count(),
        Count(-7),
        Count(mode="a, b)(", exact=True),
        Count(ratio=1e-3, sizes=(1, 2, 3)),
        Count(sizes=(), limit=4),
        Count(mode=""),
        Picky(("x", "y")),
        Picky(),
    ],
    ids=str,
)
def test_a_printed_pass_reads_back(step: Pass):
    assert list(parse_passes(str(step), TABLE)) == [step]
    assert list(parse_passes(f"nothing, {step} ,count(by=2)", TABLE)) == [Nothing(), step, Count(2)]


def test_words_need_no_quotes_and_space_does_not_count():
    assert list(parse_passes("  count( by = 2 , mode = down ),nothing, ", TABLE)) == [Count(2, "down"), Nothing()]
    assert list(parse_passes("nothing()", TABLE)) == [Nothing()]
    assert list(parse_passes("", TABLE)) == []
    assert list(parse_passes(" \n ", TABLE)) == []


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("cuont", "there is no pass 'cuont'", "did you mean 'count'?"),
        ("zzz", "there is no pass 'zzz'", "known passes: count, nothing, fails, picky"),
        ("count(speed=2)", "pass 'count' does not take these options", "options of 'count': by, mode, ratio, sizes"),
        ("nothing(a=1)", "pass 'nothing' does not take these options", "options of 'nothing': none"),
        ("picky(names=3)", "names must be a tuple", "options of 'picky': names"),
        ("count(2)", "the options of 'count' are given by name", "write it like"),
        ("count(**a)", "the options of 'count' are given by name", "write it like"),
        ("count(by=f(2))", "f(2) is neither a literal nor a word", "write it like"),
        ("count(by=2", "cannot read the list of passes 'count(by=2'", "write it like"),
        ("count)", "cannot read the list of passes", "write it like"),
        ("count,,nothing", "cannot read the list of passes", "write it like"),
        ("count(by=1, by=2)", "cannot read the list of passes", "write it like"),
        ("count][0", "cannot read the list of passes", "write it like"),
        ("count nothing", "cannot read the list of passes", "write it like"),
        ("3", "3 is no pass name", "write it like"),
        ("'count'", "'count' is no pass name", "write it like"),
        ("a.b", "a.b is no pass name", "write it like"),
        ("count\0", "cannot read the list of passes", "write it like"),
    ],
)
def test_what_cannot_be_read_is_refused_with_a_reason(text: str, message: str, hint: str):
    with pytest.raises(CompileError) as caught:
        parse_passes(text, TABLE)
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")
