"""Environment variables: typed, defaulted, and none outside the one table."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from everport.ir.knobs import CACHE, KNOBS, Knob, cache_dir

ROOT = Path(__file__).parents[2]
FOLDERS = ("ir", "targets", "tir", "relax", "frontend", "codegen", "runtime", "cli", "benchmarks", "examples", "tests")
KNOB = Knob("EVERPORT_TEST_ONLY_KNOB", "3", "of this test")


@pytest.mark.parametrize("value", ["1", "yes", "true", "on", "2"])
def test_flags_that_are_set(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv(KNOB.name, value)
    assert KNOB.flag()


@pytest.mark.parametrize("value", ["", "0", "false", "No", "OFF"])
def test_flags_that_are_not(monkeypatch: pytest.MonkeyPatch, value: str):
    monkeypatch.setenv(KNOB.name, value)
    assert not KNOB.flag()


def test_text_and_integer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(KNOB.name, raising=False)
    assert (KNOB.text(), KNOB.integer()) == ("3", 3)
    monkeypatch.setenv(KNOB.name, "12")
    assert (KNOB.text(), KNOB.integer()) == ("12", 12)
    monkeypatch.setenv(KNOB.name, "")
    assert KNOB.integer() == 0
    monkeypatch.setenv(KNOB.name, "many")
    with pytest.raises(ValueError, match="EVERPORT_TEST_ONLY_KNOB must be an integer, not 'many'"):
        KNOB.integer()


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv(CACHE.name, str(tmp_path / "chosen"))
    assert cache_dir() == tmp_path / "chosen"
    monkeypatch.delenv(CACHE.name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "everport"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert cache_dir() == tmp_path / "home" / ".cache" / "everport"


def test_the_table_is_named_well():
    names = [k.name for k in KNOBS]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"EVERPORT_[A-Z_]+", n) for n in names)
    assert all(k.help for k in KNOBS)


def _names_in(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if re.fullmatch(r"EVERPORT_[A-Z_]+", node.value):
                yield node.value


def test_no_variable_is_read_that_the_table_lacks():
    known = {k.name for k in KNOBS} | {KNOB.name}
    stray = [
        f"{path.relative_to(ROOT)}: {name}"
        for folder in FOLDERS
        for path in sorted((ROOT / folder).rglob("*.py"))
        for name in _names_in(path)
        if name not in known
    ]
    assert not stray
