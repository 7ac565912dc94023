"""The repository itself: file sizes, links, the command line's weight, examples in the docs."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def tracked() -> list[Path]:
    done = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a git checkout: the list of files is not known")
    return [ROOT / line for line in done.stdout.splitlines()]


def test_file_sizes() -> None:
    long = [
        f"{p.relative_to(ROOT)}: {n} lines"
        for p in tracked()
        if p.suffix in (".py", ".h") and p.exists() and not p.is_symlink() and (n := len(p.read_text().splitlines())) > 800
    ]
    assert not long, "split along families: " + ", ".join(long)


def test_every_folder_is_linked_and_packaged() -> None:
    for folder in ("ir", "tir", "relax", "frontend", "codegen", "runtime", "targets", "cli"):
        link = ROOT / "src" / "everport" / folder
        assert link.is_symlink() and os.readlink(link) == f"../../{folder}"
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent} is no package: the wheel would miss it"


def test_help_is_light() -> None:
    code = (
        "import sys; sys.argv = ['everport', '--help']\n"
        "from everport.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as e: assert not e.code\n"
        "heavy = {'numpy', 'onnx', 'llvmlite'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0

    def seconds(command: list[str]) -> float:
        best = float("inf")
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(command, capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return best

    bare = seconds([sys.executable, "-c", "pass"])
    helped = seconds([sys.executable, "-m", "everport.cli.main", "--help"])
    assert helped - bare < 0.150, f"--help takes {helped - bare:.3f} s of CPU time more than bare Python"


@pytest.mark.parametrize("name", ["README.md", "docs/architecture.md", "docs/package-format.md", "CONTRIBUTING.md"])
def test_examples_run(name: str, tmp_path: Path) -> None:
    text = (ROOT / name).read_text()
    for target in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((ROOT / name).parent / target).exists(), f"{name} links to {target}, which is not there"
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    for block in blocks:
        done = subprocess.run([sys.executable, "-c", block], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{name}:\n{block}\n{done.stderr}"


def test_runtime_is_small() -> None:
    size = sum(p.stat().st_size for p in (ROOT / "runtime").glob("*.py"))
    assert size < 150_000
