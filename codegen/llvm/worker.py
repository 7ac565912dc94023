"""A compiling process: reads (texts, target, opt) pickled on standard input, writes the objects or an error.

Run as a module by build.py: llvmlite holds a global lock, so parallel compilation wants processes.
"""

from __future__ import annotations

import pickle
import sys

from everport.codegen.llvm.object import compile_object
from everport.ir.errors import CompileError


def main() -> None:
    texts, target, opt = pickle.load(sys.stdin.buffer)
    try:
        result: tuple[str, object] = ("objects", [compile_object(text, target, opt) for text in texts])
    except CompileError as error:
        result = ("error", error.render())
    pickle.dump(result, sys.stdout.buffer)


if __name__ == "__main__":
    main()
