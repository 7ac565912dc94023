"""The errors of the compiler: every one says what, where and what to do."""

from __future__ import annotations

from collections.abc import Sequence

from everport.ir.span import Span


class CompileError(Exception):
    """A model, program or request that cannot be compiled.

    `span` says where it came from, `excerpt` is the IR or source text around it with `caret` (line, column, width; 0-based
    within the excerpt) under the culprit, `hint` says what to do, `notes` add facts. `render()` lays all of it out.
    """

    def __init__(
        self,
        message: str,
        *,
        span: Span | None = None,
        node: object = None,
        excerpt: str | None = None,
        caret: tuple[int, int, int] | None = None,
        hint: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.span = span if span is not None else getattr(node, "span", None)
        self.node = node
        self.excerpt = excerpt
        self.caret = caret
        self.hint = hint
        self.notes = tuple(notes)

    def __str__(self) -> str:
        return self.render()

    def render(self) -> str:
        """The whole message: headline, place, excerpt with caret, notes, hint."""
        lines = [self.message]
        if self.span is not None:
            lines.append(f"  at {self.span}")
        excerpt = self.excerpt
        if excerpt is None and self.node is not None:
            excerpt = _first_lines(str(self.node))
        if excerpt:
            for number, line in enumerate(excerpt.splitlines()):
                lines.append(f"  | {line}")
                if self.caret is not None and self.caret[0] == number:
                    lines.append("  | " + " " * self.caret[1] + "^" * max(1, self.caret[2]))
        lines.extend(f"  note: {note}" for note in self.notes)
        if self.hint:
            lines.append(f"  hint: {self.hint}")
        return "\n".join(lines)


def _first_lines(text: str, limit: int = 12) -> str:
    lines = text.splitlines()
    return "\n".join(lines[:limit] + ([f"... ({len(lines) - limit} more lines)"] if len(lines) > limit else []))


class UnsupportedError(CompileError):
    """The model asks for something that is not there yet; the message lists every occurrence."""


class VerifyError(CompileError):
    """IR that breaks a rule of its verifier table; a defect of the pass that made it."""


class ScheduleError(CompileError):
    """A schedule primitive that is not legal where it was applied; the message names the loops or blocks at fault."""


class ParseError(CompileError):
    """IR text that cannot be read."""
