"""everport run"""

from __future__ import annotations

import click

from everport.cli.options import json_option, show_json


@click.command("run")
@click.argument("package", type=click.Path())
@click.option("--input", "inputs", multiple=True, metavar="[NAME=]FILE.npy", help="An input array (repeatable).")
@click.option("--inputs", "archive", type=click.Path(), metavar="X.npz", help="All inputs by name.")
@click.option("--outputs", type=click.Path(), metavar="Y.npz", help="Write the outputs there.")
@click.option("--random", "use_random", is_flag=True, help="Fill what is not given with random values.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Sizes of dynamic dimensions for --random.")
@click.option("--threads", type=click.IntRange(1), help="Threads (default: the cores of this process).")
@json_option
def command(
    package: str,
    inputs: tuple[str, ...],
    archive: str | None,
    outputs: str | None,
    use_random: bool,
    seed: int,
    dims: tuple[str, ...],
    threads: int | None,
    as_json: bool,
) -> None:
    """Run a package and show its outputs.

    Example: everport run model.everport --input x=x.npy --outputs y.npz
    """
    import time

    import numpy as np

    from everport.cli.arrays import gather_inputs
    from everport.runtime import load

    model = load(package, threads=threads)
    arrays = gather_inputs(model, inputs, archive, use_random, seed, dims)
    start = time.perf_counter()
    made = model.run(arrays)
    seconds = time.perf_counter() - start
    if outputs:
        np.savez(outputs, **made)
    if as_json:
        shown = [
            {"name": n, "dtype": str(a.dtype), "shape": list(a.shape), "first": [float(v) for v in a.reshape(-1)[:8]]}
            for n, a in made.items()
        ]
        show_json({"seconds": seconds, "outputs": shown, "written": outputs})
        return
    for name, array in made.items():
        values = np.array2string(array.reshape(-1)[:6], precision=5, separator=", ")
        more = ", ...]" if array.size > 6 else "]"
        click.echo(f"{name}: {array.dtype}{list(array.shape)} {values[:-1]}{more}")
    click.echo(f"{seconds * 1e3:.2f} ms" + (f", written to {outputs}" if outputs else ""))
