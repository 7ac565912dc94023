"""`everport`: the group of verbs. Nothing heavy is imported before a verb runs."""

from __future__ import annotations

import difflib
import importlib
import json
import os
import sys
from typing import Any

import click

# verb -> what it is for, shown without loading it.
VERBS: dict[str, str] = {
    "compile": "Compile an ONNX model into a package.",
    "run": "Run a package on arrays.",
    "bench": "Time a package.",
    "inspect": "Show the stages of a model, or the contents of a package.",
    "check": "Compare a compiled model with ONNX Runtime.",
    "ops": "List the supported operators.",
    "doctor": "Show targets, linkers and versions found here.",
}


class Verbs(click.Group):
    """Loads a verb's module on use; suggests the nearest name for an unknown one."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in VERBS:
            return None
        return importlib.import_module(f"everport.cli.{name}").command

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            close = difflib.get_close_matches(args[0], VERBS, 1)
            hint = f"did you mean {close[0]!r}?" if close else f"verbs: {', '.join(VERBS)}"
            raise click.UsageError(f"there is no verb {args[0]!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(list(VERBS.items()))


@click.group(cls=Verbs, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option("0.1.0", prog_name="everport")
def group() -> None:
    """Everport compiles trained models into packages that run anywhere.

    Example: everport compile model.onnx && everport run model.everport --random
    """


def main() -> None:
    """Runs the command line. Exit codes: 0 right, 1 the model's or the user's fault, 2 usage."""
    debug = os.environ.get("EVERPORT_DEBUG", "0") not in ("", "0")
    try:
        group.main(standalone_mode=False)
    except click.exceptions.Exit as end:
        sys.exit(end.exit_code)
    except click.Abort:
        click.echo("interrupted", err=True)
        sys.exit(130)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        known = type(error).__name__ in ("CompileError", "UnsupportedError", "ScheduleError", "ParseError", "RunError")
        if debug or not known:
            if not debug:
                click.echo("this is a defect of everport; please report it with the model and this trace:", err=True)
            raise
        report(error)
        sys.exit(1)


def report(error: Exception) -> None:
    """Shows an error as text, or as JSON where --json was given."""
    text = str(error)
    if "--json" in sys.argv:
        click.echo(json.dumps({"error": type(error).__name__, "message": text}))
    else:
        click.echo(f"error: {text}", err=True)


if __name__ == "__main__":
    main()
