"""Target: the one description of a device that schedules and code generators read."""

from __future__ import annotations

import difflib
from dataclasses import dataclass

from everport.ir.errors import CompileError
from everport.targets.cpu import CPU_LEVELS, CpuLevel, host_level


@dataclass(frozen=True, slots=True)
class Target:
    """A compilation target. `features` must be there at load time; cache sizes (bytes, one core) guide schedules."""

    kind: str
    level: CpuLevel
    l1_bytes: int = 32 * 1024
    l2_bytes: int = 512 * 1024

    @property
    def name(self) -> str:
        return f"{self.kind}:{self.level.name}"

    @property
    def features(self) -> tuple[str, ...]:
        return self.level.features

    @property
    def vector_bytes(self) -> int:
        return self.level.vector_bits // 8

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector register."""
        return max(1, self.vector_bytes // itemsize)


KINDS: tuple[str, ...] = ("cpu",)


def parse_target(text: str) -> Target:
    """Reads "cpu" (this machine's level) or "cpu:LEVEL"; a CompileError lists what there is."""
    kind, _, level = text.partition(":")
    if kind not in KINDS:
        close = difflib.get_close_matches(kind, KINDS, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"targets: {', '.join(KINDS)}"
        raise CompileError(f"there is no target {text!r}", hint=hint)
    if not level:
        return Target(kind, host_level())
    if level not in CPU_LEVELS:
        close = difflib.get_close_matches(level, CPU_LEVELS, 1)
        hint = f"did you mean 'cpu:{close[0]}'?" if close else f"levels: {', '.join(CPU_LEVELS)}"
        raise CompileError(f"target 'cpu' has no level {level!r}", hint=hint)
    return Target(kind, CPU_LEVELS[level])
