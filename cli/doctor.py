"""everport doctor"""

from __future__ import annotations

import click

from everport.cli.options import json_option, show_json


@click.command("doctor")
@json_option
def command(as_json: bool) -> None:
    """Show what this machine has: targets, linkers, cache, versions.

    Example: everport doctor
    """
    import importlib.metadata
    import os
    import platform
    import shutil
    import sys

    from everport.ir.knobs import KNOBS, cache_dir
    from everport.targets import CPU_LEVELS, host_level

    versions = {}
    for name in ("everport", "numpy", "ml_dtypes", "onnx", "llvmlite", "click", "onnxruntime", "ziglang", "cupy", "wgpu", "vulkan"):
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    linkers = {"ld": shutil.which("ld"), "cc": shutil.which("cc"), "ziglang": versions["ziglang"]}
    cache = cache_dir()
    nearest = cache
    while not nearest.exists():
        nearest = nearest.parent
    result = {
        "python": sys.version.split()[0],
        "system": f"{platform.system()} {platform.machine()}",
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "targets": {f"cpu:{name}": level.vector_bits for name, level in CPU_LEVELS.items()},
        "host": f"cpu:{host_level().name}",
        "linkers": linkers,
        "cache": {"path": str(cache), "writable": os.access(nearest, os.W_OK)},
        "versions": versions,
        "knobs": {k.name: os.environ[k.name] for k in KNOBS if k.name in os.environ},
    }
    if as_json:
        show_json(result)
        return
    click.echo(f"python   {result['python']} on {result['system']}, {result['cores']} cores")
    click.echo(f"target   {result['host']} (this machine); also {', '.join(t for t in result['targets'] if t != result['host'])}")
    for name, found in linkers.items():
        click.echo(f"linker   {name}: {found or 'not found'}")
    if not any(linkers.values()):
        click.echo("         compiling needs one: install binutils, or pip install 'everport[link]'")
    click.echo(f"cache    {cache} ({'writable' if result['cache']['writable'] else 'NOT writable: kernels are not kept'})")
    for name, version in versions.items():
        click.echo(f"package  {name} {version or '- not installed'}")
    for name, value in result["knobs"].items():
        click.echo(f"knob     {name}={value}")
