"""Every environment variable the compiler reads, typed, in one place (the runtime has its own, it stands alone)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Knob:
    """One variable: its name, default, and what it does."""

    name: str
    default: str
    help: str

    def text(self) -> str:
        return os.environ.get(self.name, self.default)

    def flag(self) -> bool:
        return self.text().lower() not in ("", "0", "false", "no", "off")

    def integer(self) -> int:
        """The value as an integer; raises ValueError that names the variable."""
        try:
            return int(self.text() or "0")
        except ValueError:
            raise ValueError(f"{self.name} must be an integer, not {self.text()!r}") from None


DEBUG = Knob(
    "EVERPORT_DEBUG", "0", "1: tracebacks; 2: also verify after every pass; 3: also print what each pass changed"
)
CACHE = Knob("EVERPORT_CACHE", "", "folder of the kernel cache and fetched models (default: ~/.cache/everport)")
NO_CACHE = Knob("EVERPORT_NO_CACHE", "0", "1: neither read nor write the kernel cache")
JOBS = Knob("EVERPORT_JOBS", "0", "worker processes of the compiler (0: one for each usable core)")
DUMP = Knob("EVERPORT_DUMP", "", "folder into which every pass writes the module it made")
LINKER = Knob(
    "EVERPORT_LINKER", "", "linker to use: a path or one of ld, cc, ziglang (default: the first that is found)"
)
NUM_THREADS = Knob("EVERPORT_NUM_THREADS", "", "threads of the runtime (default: the cores this process may use)")

KNOBS: tuple[Knob, ...] = (DEBUG, CACHE, NO_CACHE, JOBS, DUMP, LINKER, NUM_THREADS)


def cache_dir() -> Path:
    """The folder for caches; it may not exist yet and may not be writable."""
    chosen = CACHE.text()
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "everport"
