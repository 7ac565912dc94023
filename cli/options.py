"""Options and output that verbs share."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
target_option = click.option("--target", default="cpu", show_default=True, help="cpu, or cpu:LEVEL (see everport doctor).")
opt_option = click.option("--opt", type=click.IntRange(0, 3), default=2, show_default=True, help="Effort: 0 fastest compile.")
dims_option = click.option(
    "--dim", "dims", multiple=True, metavar="NAME=N|LO..HI|%N==0", help="Fix or bound a dynamic dimension (repeatable)."
)


def parse_dims(options: tuple[str, ...]) -> dict[str, str]:
    """`batch=1`, `seq=1..64`, `width%8==0` by name; a usage error shows the form."""
    result = {}
    for option in options:
        name, separator, value = option.partition("=")
        if "%" in name:
            name, _, divisor = name.partition("%")
            value = f"%{divisor}={value}"
        if not separator or not name or not value:
            raise click.BadParameter(f"{option!r} is not NAME=N, NAME=LO..HI or NAME%N==0", param_hint="--dim")
        result[name.strip()] = value.strip()
    return result


def show_json(value: Any) -> None:
    click.echo(json.dumps(value))


def progress(enabled: bool) -> Callable[[str, int, int], None] | None:
    """A line on the terminal that says what is going on; nothing where output is no terminal."""
    if not enabled or not sys.stderr.isatty():
        return None
    start = time.perf_counter()

    def show(stage: str, done: int, total: int) -> None:
        count = f" {done}/{total}" if total else ""
        click.echo(f"\r\033[K{time.perf_counter() - start:5.1f} s  {stage}{count}", nl=False, err=True)

    return show


def clear_progress(enabled: bool) -> None:
    if enabled and sys.stderr.isatty():
        click.echo("\r\033[K", nl=False, err=True)


def size_text(count: int) -> str:
    """Bytes for people."""
    value = float(count)
    for unit in ("B", "KB", "MB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GB"
