"""everport ops"""

from __future__ import annotations

import click

from everport.cli.options import json_option, show_json


@click.command("ops")
@json_option
def command(as_json: bool) -> None:
    """List ONNX's operators and how each is supported.

    Example: everport ops --json
    """
    import onnx

    from everport.frontend.onnx.table import CONVERTERS

    newest: dict[tuple[str, str], int] = {}
    function: dict[tuple[str, str], bool] = {}
    for schema in onnx.defs.get_all_schemas():
        if schema.deprecated:
            continue
        key = (schema.domain, schema.name)
        newest[key] = max(newest.get(key, 0), schema.since_version)
        function[key] = schema.has_function or schema.has_context_dependent_function
    rows = []
    for (domain, name), version in sorted(newest.items()):
        versions = [v for v, _ in CONVERTERS.get(domain, {}).get(name, [])]
        how = "converter" if versions else "function body" if function[domain, name] else "missing"
        rows.append({"domain": domain or "ai.onnx", "op": name, "newest": version, "how": how, "since": versions})
    if as_json:
        show_json(rows)
        return
    for row in rows:
        since = f" (since {', '.join(map(str, row['since']))})" if row["since"] else ""
        click.echo(f"{row['domain']:28} {row['op']:28} {row['how']}{since}")
    standard = [r for r in rows if r["domain"] == "ai.onnx"]
    done = sum(r["how"] != "missing" for r in standard)
    click.echo(f"ai.onnx: {done} of {len(standard)} operators")
