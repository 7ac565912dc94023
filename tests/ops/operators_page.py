"""Writes docs/operators.md from the converter table and the expectation file: `python tests/ops/operators_page.py`."""

from __future__ import annotations

import sys
from collections import defaultdict
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from ops.node_suite import cases, expectations  # noqa: E402

from everport.frontend.onnx.table import CONVERTERS  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operators.md"
HEAD = """# Operators

Made by `python tests/ops/operators_page.py` from the converter table and `tests/ops/expectations.txt`. Tests are ONNX's own node tests of one
node (those of expanded function bodies count for the operators inside). "With constants" pass where their shape, axis or count inputs are
constants, as models have them; given as data they are refused.
"""


def page() -> str:
    """The text of docs/operators.md."""
    ends: dict[tuple[str, str], list[str]] = defaultdict(list)
    expected = expectations()
    for name, case in cases().items():
        nodes = case.model.graph.node
        if len(nodes) == 1 and name in expected:
            domain = "" if nodes[0].domain == "ai.onnx" else nodes[0].domain
            ends[domain, nodes[0].op_type].append(expected[name])
    versions: dict[tuple[str, str], set[int]] = defaultdict(set)
    body: set[tuple[str, str]] = set()
    for schema in onnx.defs.get_all_schemas_with_history():
        key = (schema.domain, schema.name)
        versions[key].add(schema.since_version)
        if schema.has_function or schema.has_context_dependent_function:
            body.add(key)
    live = {(s.domain, s.name) for s in onnx.defs.get_all_schemas() if not s.deprecated}
    lines = [HEAD]
    for domain in sorted({d for d, _ in live}):
        lines += ["", f"## {domain or 'ai.onnx'}", "", "| operator | imported from opset | versions | pass | with constants | refused | why |", "| --- " * 7 + "|"]
        for key in sorted(k for k in live if k[0] == domain):
            rows = CONVERTERS.get(domain, {}).get(key[1], [])
            how = str(min(v for v, _ in rows)) if rows else "function body" if key in body else "no"
            found = ends[key]
            constants = sum(e.endswith("constants: pass") for e in found)
            refused = [e for e in found if e.startswith("refused") and not e.endswith("constants: pass")]
            reasons = sorted({e.removeprefix("refused: ").removeprefix(f"{key[1]}: ").split(" | ")[0] for e in refused})
            shown = "; ".join(reasons).replace("|", "/")
            counts = f"{found.count('pass')} | {constants} | {len(refused)}"
            lines.append(f"| {key[1]} | {how} | {', '.join(map(str, sorted(versions[key])))} | {counts} | {shown} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
