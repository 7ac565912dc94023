"""RunError: what went wrong with a package or a call, in a sentence that names the culprit."""

from __future__ import annotations


class RunError(Exception):
    """A package that cannot be loaded or a call that does not fit. `code` is a stable word: "package", "version", "cpu",
    "input", "shape", "dtype", "output", "range", "memory", "internal"."""

    def __init__(self, message: str, code: str = "package") -> None:
        super().__init__(message)
        self.code = code
