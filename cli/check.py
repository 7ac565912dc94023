"""everport check"""

from __future__ import annotations

import click

from everport.cli.options import dims_option, json_option, opt_option, parse_dims, show_json, target_option


@click.command("check")
@click.argument("model", type=click.Path())
@target_option
@dims_option
@opt_option
@click.option("--inputs", "archive", type=click.Path(), metavar="X.npz", help="Inputs by name (default: random).")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--rtol", type=float, default=1e-3, show_default=True)
@click.option("--atol", type=float, default=1e-4, show_default=True)
@json_option
def command(
    model: str,
    target: str,
    dims: tuple[str, ...],
    opt: int,
    archive: str | None,
    seed: int,
    rtol: float,
    atol: float,
    as_json: bool,
) -> None:
    """Compile a model, run it, and compare with ONNX Runtime (or the interpreter where that is not installed).

    Exit code 1 where an output is off. Example: everport check model.onnx --dim batch=2
    """
    import dataclasses

    import numpy as np

    from everport.api import check

    inputs = None
    if archive is not None:
        with np.load(archive, allow_pickle=False) as loaded:
            inputs = {k: loaded[k] for k in loaded.files}
    result = check(model, target, parse_dims(dims), inputs, rtol, atol, seed, opt)
    if as_json:
        show_json({**dataclasses.asdict(result), "ok": result.ok})
    else:
        for o in result.outputs:
            verdict = "agrees" if o.within else "DIFFERS"
            click.echo(f"{o.name}: {verdict} with {result.reference}, largest error {o.error:.3g} of {o.largest:.3g}")
        if not result.ok:
            click.echo(f"first layer that differs: {result.first_difference or 'none: only the whole differs'}")
    if not result.ok:
        raise click.exceptions.Exit(1)
