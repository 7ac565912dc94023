"""Passes and their runner: a pass is a frozen dataclass whose fields are its options, called on a module."""

from __future__ import annotations

import ast
import dataclasses
import difflib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from everport.ir.errors import CompileError, VerifyError
from everport.ir.module import IRModule


class Pass:
    """A pure function from module to module. `name` is what the command line calls it (fuse_ops, plan_memory)."""

    name: ClassVar[str] = ""

    def __call__(self, module: IRModule) -> IRModule:
        raise TypeError(f"{type(self).__name__} does not implement __call__")

    def __str__(self) -> str:
        changed = [f.name for f in _options_of(self) if getattr(self, f.name) != f.default]
        shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in changed)
        return self.name + (f"({shown})" if shown else "")


def _options_of(step: Any) -> tuple[dataclasses.Field[Any], ...]:
    """The option fields of a pass or of its class; none where it has no options and is no dataclass."""
    return dataclasses.fields(step) if dataclasses.is_dataclass(step) else ()


@dataclasses.dataclass(frozen=True, slots=True)
class PassRecord:
    """What the runner saw of one pass: seconds taken and whether the module changed."""

    name: str
    seconds: float
    changed: bool


@dataclasses.dataclass(slots=True)
class PassRunner:
    """Runs passes in order. `verify` checks the module after each; `dump_dir` gets numbered texts; `on_diff` gets a unified diff.

    `render` turns a module into text (the printers live above this floor).
    """

    verify: Callable[[IRModule], None] | None = None
    render: Callable[[IRModule], str] | None = None
    dump_dir: Path | None = None
    on_diff: Callable[[str, str], None] | None = None
    on_pass: Callable[[str], None] | None = None
    records: list[PassRecord] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        if self.render is None and (self.dump_dir is not None or self.on_diff is not None):
            raise ValueError("dump_dir and on_diff show modules as text: give render too")

    def run(self, module: IRModule, passes: Iterable[Pass]) -> IRModule:
        """The module after all passes; an error of a pass or of the verifier names the pass."""
        for step in passes:
            if self.on_pass is not None:
                self.on_pass(step.name)
            start = time.perf_counter()
            try:
                result = step(module)
            except CompileError as error:
                error.notes = (*error.notes, f"in pass {step}")
                raise
            self.records.append(PassRecord(step.name, time.perf_counter() - start, result is not module))
            if self.verify is not None and result is not module:
                try:
                    self.verify(result)
                except VerifyError as error:
                    error.notes = (*error.notes, f"the module was valid before pass {step} and is not after it")
                    raise
            self._report(step, module, result)
            module = result
        return module

    def _report(self, step: Pass, before: IRModule, after: IRModule) -> None:
        if self.render is None:
            return
        if self.dump_dir is not None:
            self.dump_dir.mkdir(parents=True, exist_ok=True)
            (self.dump_dir / f"{len(self.records):02d}_{step.name}.txt").write_text(self.render(after))
        if self.on_diff is not None and after is not before:
            old, new = self.render(before).splitlines(), self.render(after).splitlines()
            self.on_diff(str(step), "\n".join(difflib.unified_diff(old, new, "before", f"after {step}", lineterm="")))


def parse_passes(text: str, table: Mapping[str, type[Pass]]) -> Sequence[Pass]:
    """Reads `"fuse_ops, plan_memory(align=64)"` against a table of passes: names, or calls with keyword options whose values
    are Python literals or bare words. `str(pass)` reads back. A CompileError lists the known names or options."""
    source = text.strip()
    try:
        tree = ast.parse(f"[{source}]", mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise _unreadable(source, getattr(error, "msg", str(error))) from None
    if not isinstance(tree, ast.List):
        raise _unreadable(source, "brackets do not match")
    return [_one_pass(item, table, source) for item in tree.elts]


def _one_pass(item: ast.expr, table: Mapping[str, type[Pass]], source: str) -> Pass:
    called = item.func if isinstance(item, ast.Call) else item
    if not isinstance(called, ast.Name):
        raise _unreadable(source, f"{ast.unparse(item)} is no pass name")
    name = called.id
    if name not in table:
        close = difflib.get_close_matches(name, table, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"known passes: {', '.join(table)}"
        raise CompileError(f"there is no pass {name!r}", hint=hint)
    options: dict[str, Any] = {}
    if isinstance(item, ast.Call):
        if item.args or any(k.arg is None for k in item.keywords):
            raise _unreadable(source, f"the options of {name!r} are given by name")
        options = {str(k.arg): _option(k.value, source) for k in item.keywords}
        if len(options) < len(item.keywords):
            raise _unreadable(source, f"an option of {name!r} is given twice")
    try:
        return table[name](**options)
    except (TypeError, ValueError) as error:
        hint = f"options of {name!r}: {', '.join(f.name for f in _options_of(table[name])) or 'none'}"
        raise CompileError(f"pass {name!r} does not take these options: {error}", hint=hint) from None


def _option(value: ast.expr, source: str) -> Any:
    if isinstance(value, ast.Name):
        return value.id
    try:
        return ast.literal_eval(value)
    except ValueError:
        raise _unreadable(source, f"{ast.unparse(value)} is neither a literal nor a word") from None


def _unreadable(source: str, reason: str) -> CompileError:
    return CompileError(
        f"cannot read the list of passes {source!r}: {reason}", hint='write it like "fuse_ops, plan_memory(align=64)"'
    )
