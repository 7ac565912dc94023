"""Everport: a deployment compiler for trained models.

    everport.compile("model.onnx")            writes model.everport
    everport.load("model.everport")(x)        runs it
    everport.check("model.onnx")              compares it with ONNX Runtime

Names are loaded on first use, so that importing everport costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from everport.api import check, compile
    from everport.ir.errors import CompileError, UnsupportedError
    from everport.runtime import Model, RunError, load

__version__ = "0.1.0"

_WHERE = {
    "compile": "everport.api",
    "check": "everport.api",
    "CompileError": "everport.ir.errors",
    "UnsupportedError": "everport.ir.errors",
    "Model": "everport.runtime",
    "RunError": "everport.runtime",
    "load": "everport.runtime",
}
__all__ = ["CompileError", "Model", "RunError", "UnsupportedError", "check", "compile", "load"]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'everport' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
