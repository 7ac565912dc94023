"""The import arrows, imports inside functions included."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ALLOWED: dict[str, set[str]] = {
    "ir": {"ir"},
    "targets": {"ir", "targets"},
    "tir": {"ir", "targets", "tir"},
    "relax": {"ir", "targets", "tir", "relax"},
    "frontend": {"ir", "targets", "tir", "relax", "frontend"},
    "codegen": {"ir", "targets", "tir", "relax", "codegen", "runtime"},
    "runtime": {"runtime"},
}
LAZY = ("cli", "src/everport")
FOLDERS = (*ALLOWED, "cli")


def sources(folder: str) -> list[Path]:
    return [p for p in sorted((ROOT / folder).rglob("*.py")) if not any(q.is_symlink() for q in p.parents)]


def imports(path: Path) -> list[tuple[str, int, bool]]:
    """(module, line, inside a function) of every import, also by importlib.import_module and __import__."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(f)}
    found = []
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            names = [("." * node.level) + base]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str):
            called = ast.unparse(node.func)
            if called.endswith("import_module") or called == "__import__":
                names = [node.args[0].value]
        found += [(n, getattr(node, "lineno", 0), id(node) in inside) for n in names]
    return found


@pytest.mark.parametrize("folder", ALLOWED)
def test_arrows(folder: str) -> None:
    wrong = []
    for path in sources(folder):
        for name, line, inside in imports(path):
            where = f"{path.relative_to(ROOT)}:{line}: {name}"
            if name.startswith("everport"):
                part = name.split(".")[1] if "." in name else "(package)"
                if part not in ALLOWED[folder] and not (folder == "codegen" and part == "(package)"):
                    wrong.append(where)
                if inside:
                    wrong.append(f"{where} (inside a function)")
            if name.split(".")[0] in FOLDERS:
                wrong.append(f"{where} (bare name: a second copy of the module)")
    assert not wrong, "\n".join(wrong)


def test_runtime_needs_only_numpy() -> None:
    import sys

    allowed = set(sys.stdlib_module_names) | {"numpy", "ml_dtypes"}
    wrong = []
    for path in sources("runtime"):
        for name, line, _ in imports(path):
            if not name.startswith((".", "everport.runtime")) and name.split(".")[0] not in allowed:
                wrong.append(f"{path.name}:{line}: {name}")
            if name == "ml_dtypes" and path.name != "model.py":
                wrong.append(f"{path.name}:{line}: {name}")
    assert not wrong, "\n".join(wrong)


def test_bare_imports_nowhere() -> None:
    for folder in (*LAZY, "tests", "examples", "benchmarks"):
        for path in sources(folder):
            for name, line, _ in imports(path):
                assert name.split(".")[0] not in ALLOWED, f"{path}:{line}: import {name}"
