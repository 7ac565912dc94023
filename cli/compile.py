"""everport compile"""

from __future__ import annotations

import click

from everport.cli.options import (
    clear_progress,
    dims_option,
    json_option,
    opt_option,
    parse_dims,
    progress,
    show_json,
    size_text,
    target_option,
)

STAGES = ("relax", "graph", "tir", "scheduled", "lowered", "program", "llvm", "asm")


@click.command("compile")
@click.argument("model", type=click.Path())
@target_option
@click.option("-o", "--output", type=click.Path(), help="The package to write (default: MODEL.everport here).")
@dims_option
@opt_option
@click.option("--emit", type=click.Choice(STAGES), help="Print this stage instead of writing a package.")
@json_option
def command(model: str, target: str, output: str | None, dims: tuple[str, ...], opt: int, emit: str | None, as_json: bool) -> None:
    """Compile an ONNX model into one package file.

    Example: everport compile model.onnx --dim batch=1..8 -o model.everport
    """
    from everport.driver import Compilation, compile_model
    from everport.targets import parse_target

    if emit is not None:
        from everport.cli.stages import stage_text

        click.echo(stage_text(Compilation(model, parse_target(target), parse_dims(dims), opt), emit), nl=False)
        return
    shown = not as_json
    path, job = compile_model(model, target, parse_dims(dims), output, opt, progress(shown))
    clear_progress(shown)
    library = job.library()
    size = path.stat().st_size
    seconds = sum(job.seconds.values())
    if as_json:
        show_json(
            {
                "package": str(path), "bytes": size, "target": job.target.name, "seconds": seconds,
                "stages_s": job.seconds, "kernels": len(library.texts), "kernels_cached": library.cached,
            }
        )  # fmt: skip
        return
    click.echo(f"{path}: {size_text(size)}, {len(library.texts)} kernels for {job.target.name}, {seconds:.1f} s")
