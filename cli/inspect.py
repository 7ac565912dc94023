"""everport inspect"""

from __future__ import annotations

import click

from everport.cli.options import dims_option, json_option, opt_option, parse_dims, show_json, size_text, target_option

STAGES = ("relax", "graph", "tir", "scheduled", "lowered", "llvm", "asm", "program")


@click.command("inspect")
@click.argument("path", metavar="MODEL|PACKAGE", type=click.Path())
@click.option("--stage", type=click.Choice(STAGES), help="Print this stage.")
@click.option("--kernel", metavar="NAME", help="Only this kernel (tir, scheduled, lowered, llvm, asm).")
@click.option("--passes", metavar="LIST", help='Apply these graph passes to the imported model: "canonicalize,dead_code".')
@click.option("--memory", is_flag=True, help="Show the memory of the package, at given sizes with --dim NAME=N.")
@target_option
@dims_option
@opt_option
@json_option
def command(
    path: str,
    stage: str | None,
    kernel: str | None,
    passes: str | None,
    memory: bool,
    target: str,
    dims: tuple[str, ...],
    opt: int,
    as_json: bool,
) -> None:
    """Show a model's stages or a package's contents.

    Example: everport inspect model.onnx --stage scheduled --kernel fused_conv_relu
    """
    if _is_package(path):
        _package(path, stage, memory, parse_dims(dims), as_json)
        return
    from everport.cli.stages import module_text, stage_text
    from everport.driver import Compilation
    from everport.targets import parse_target

    job = Compilation(path, parse_target(target), parse_dims(dims), opt)
    if passes is not None:
        from everport.ir.passes import PassRunner, parse_passes
        from everport.relax.passes import PASSES
        from everport.relax.verify import verify_module

        module = PassRunner(verify=verify_module).run(job.imported(), parse_passes(passes, PASSES))
        text = module_text(module)
    elif memory:
        program, _ = job.program()
        _memory(program, parse_dims(dims), as_json)
        return
    else:
        text = stage_text(job, stage or "relax", kernel)
    if as_json:
        show_json({"stage": passes or stage or "relax", "text": text})
    else:
        click.echo(text, nl=False)


def _is_package(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(2) == b"PK"
    except OSError:
        return False


def _memory(program, dims: dict[str, str], as_json: bool) -> None:  # noqa: ANN001
    from everport.runtime.program import Let, evaluate, registers_of, text_of

    sizes = {k: int(v) for k, v in dims.items() if v.isdigit()}
    weights = sum(w.bytes for w in program.weights)
    result = {"weights": weights, "arena": text_of(program.arena), "arena_bytes": None}
    registers = dict(sizes)
    for i in program.instructions:
        if isinstance(i, Let) and set(registers_of(i.value)) <= set(registers):
            registers[i.register] = evaluate(i.value, registers)
    if set(registers_of(program.arena)) <= set(registers):
        result["arena_bytes"] = evaluate(program.arena, registers)
    if as_json:
        show_json(result)
        return
    click.echo(f"weights {size_text(weights)}")
    click.echo(f"arena   {result['arena']} bytes")
    if result["arena_bytes"] is not None:
        click.echo(f"        = {size_text(int(result['arena_bytes']))}" + (f" at {sizes}" if sizes else ""))


def _package(path: str, stage: str | None, memory: bool, dims: dict[str, str], as_json: bool) -> None:
    from everport.runtime.package import Package
    from everport.runtime.program import script

    package = Package(path)
    if memory:
        _memory(package.program, dims, as_json)
        return
    if stage not in (None, "program"):
        raise click.UsageError("a package holds the stage 'program' only; inspect the model for the others")
    if stage == "program":
        text = script(package.program)
        if as_json:
            show_json({"stage": stage, "text": text})
        else:
            click.echo(text, nl=False)
        return
    if as_json:
        show_json(package.manifest)
        return
    m = package.manifest
    click.echo(f"{path}: {m['name']}, by {m['producer']}, format {m['format'][0]}.{m['format'][1]}")
    click.echo(f"target {m['target']['name']} (needs {', '.join(m['target']['features'])})")
    for title in ("inputs", "outputs"):
        for t in m[title]:
            click.echo(f"{title[:-1]:7} {t['name']}: {t['dtype']}[{', '.join(map(str, t['shape']))}]")
    click.echo(f"memory  {m['peak_memory']} bytes at peak")
    for name, (_, size) in sorted(package.archive.entries.items()):
        click.echo(f"  {size_text(size):>10}  {name}")
