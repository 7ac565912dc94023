"""everport bench"""

from __future__ import annotations

import click

from everport.cli.options import json_option, show_json


@click.command("bench")
@click.argument("package", type=click.Path())
@click.option("--inputs", "archive", type=click.Path(), metavar="X.npz", help="Inputs by name (default: random).")
@click.option("--outputs", type=click.Path(), metavar="Y.npz", help="Write the outputs there.")
@click.option("--threads", type=click.IntRange(1), help="Threads (default: the cores of this process).")
@click.option("--seconds", type=float, default=3.0, show_default=True, help="Time to spend.")
@click.option("--runs", type=click.IntRange(1), help="Number of runs instead.")
@click.option("--dim", "dims", multiple=True, metavar="NAME=N", help="Sizes of dynamic dimensions for random inputs.")
@click.option("--seed", type=int, default=0, show_default=True)
@json_option
def command(
    package: str,
    archive: str | None,
    outputs: str | None,
    threads: int | None,
    seconds: float,
    runs: int | None,
    dims: tuple[str, ...],
    seed: int,
    as_json: bool,
) -> None:
    """Time a package: median, p90, and each kernel with its GFLOP/s and GB/s.

    Example: everport bench model.everport --threads 1 --runs 50
    """
    import resource
    import time

    import numpy as np

    from everport.cli.arrays import gather_inputs
    from everport.runtime import load

    start = time.perf_counter()
    model = load(package, threads=threads)
    load_seconds = time.perf_counter() - start
    arrays = gather_inputs(model, (), archive, archive is None, seed, dims)
    made = model.run(arrays)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < runs if runs is not None else (not times or time.perf_counter() < end):
        begin = time.perf_counter()
        model.run(arrays)
        times.append(time.perf_counter() - begin)
    kernels = model.profile(arrays)
    if outputs:
        np.savez(outputs, **made)
    if as_json:
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        show_json(
            {
                "times_s": times, "median_s": float(np.median(times)), "p90_s": float(np.percentile(times, 90)),
                "load_s": load_seconds, "rss_kb": rss, "threads": model.threads, "kernels": kernels,
            }
        )  # fmt: skip
        return
    median, p90 = np.median(times) * 1e3, np.percentile(times, 90) * 1e3
    click.echo(f"median {median:.3f} ms, p90 {p90:.3f} ms over {len(times)} runs on {model.threads} thread(s)")
    by_kernel: dict[str, list[float]] = {}
    for k in kernels:
        row = by_kernel.setdefault(k["kernel"], [0, 0.0, 0.0, 0.0])
        row[0] += 1
        row[1] += k["seconds"]
        row[2] += k["gflops"] * k["seconds"]
        row[3] += k["gbytes"] * k["seconds"]
    total = sum(r[1] for r in by_kernel.values()) or 1.0
    click.echo(f"{'kernel':48} {'calls':>5} {'ms':>9} {'share':>6} {'GFLOP/s':>8} {'GB/s':>6}")
    for name, (count, spent, flops, moved) in sorted(by_kernel.items(), key=lambda r: -r[1][1])[:25]:
        rate = (flops / spent, moved / spent) if spent else (0.0, 0.0)
        click.echo(f"{name[:48]:48} {count:5.0f} {spent * 1e3:9.3f} {spent / total:6.1%} {rate[0]:8.1f} {rate[1]:6.1f}")
