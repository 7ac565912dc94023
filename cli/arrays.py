"""Inputs of a package from files, archives and random numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np

from everport.runtime import Model, RunError
from everport.runtime.main import parse_inputs, random_inputs


def gather_inputs(
    model: Model, files: Sequence[str], archive: str | None, use_random: bool, seed: int, dims: Sequence[str] = ()
) -> dict[str, Any]:
    """Arrays by input name; later sources win: random, archive, files."""
    sizes = {}
    for option in dims:
        name, separator, value = option.partition("=")
        if not separator or not value.isdigit():
            raise click.BadParameter(f"{option!r} is not NAME=N", param_hint="--dim")
        sizes[name] = int(value)
    arrays: dict[str, Any] = random_inputs(model, seed, sizes) if use_random else {}
    if archive is not None:
        try:
            with np.load(archive, allow_pickle=False) as loaded:
                arrays.update({k: loaded[k] for k in loaded.files})
        except (OSError, ValueError) as error:
            raise RunError(f"{archive!r} cannot be read as .npz: {error}", "input") from None
    arrays.update(parse_inputs(model, list(files)))
    if not arrays and model.inputs:
        raise RunError("no inputs: give --input, --inputs or --random", "input")
    return arrays
