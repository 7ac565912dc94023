"""Passes and their runner: a pass is a frozen dataclass whose fields are its options, called on a module."""

from __future__ import annotations

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
        fields = dataclasses.fields(self) if dataclasses.is_dataclass(self) else ()
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields if getattr(self, f.name) != f.default)
        return self.name + (f"({shown})" if shown else "")


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
    """Reads `"fuse_ops,plan_memory(align=64)"` against a table of passes; a CompileError lists the known names."""
    result = []
    for item in filter(None, (part.strip() for part in _split_commas(text))):
        name, _, rest = item.partition("(")
        if name not in table:
            close = difflib.get_close_matches(name, table, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"known passes: {', '.join(table)}"
            raise CompileError(f"there is no pass {name!r}", hint=hint)
        options: dict[str, Any] = {}
        for option in filter(None, (o.strip() for o in rest.rstrip(")").split(","))):
            key, _, value = option.partition("=")
            options[key.strip()] = _literal(value.strip())
        try:
            result.append(table[name](**options))
        except TypeError as error:
            raise CompileError(f"pass {name!r} does not take these options: {error}") from None
    return result


def _split_commas(text: str) -> list[str]:
    parts, depth = [""], 0
    for char in text:
        depth += (char == "(") - (char == ")")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _literal(text: str) -> Any:
    if text in ("True", "False"):
        return text == "True"
    try:
        return int(text)
    except ValueError:
        return text.strip("'\"")
