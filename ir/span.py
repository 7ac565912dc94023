"""Where a node came from: a place in a text file, or a node of a model."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A source position. For text: file, line (1-based) and column (0-based). For an ONNX node: its name, type and index."""

    source: str
    line: int | None = None
    column: int | None = None
    node: str | None = None
    op: str | None = None
    index: int | None = None

    def __str__(self) -> str:
        if self.op is not None or self.node is not None:
            where = f"node {self.node!r}" if self.node else "unnamed node"
            number = "" if self.index is None else f" (#{self.index})"
            return f"{self.source}: {where}{number} of type {self.op}" if self.op else f"{self.source}: {where}{number}"
        if self.line is None:
            return self.source
        return f"{self.source}:{self.line}" + ("" if self.column is None else f":{self.column + 1}")
