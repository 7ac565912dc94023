"""The kernel cache on disk: objects keyed by the content they were made from.

An entry is the SHA-256 of the object followed by the object; a hit is verified, a broken entry is made anew. Writes go to a
temporary file and are renamed, so any number of compilers may share a folder. A cache that cannot be written costs only time
and is reported once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from pathlib import Path

from everport.codegen.llvm.object import BACKEND
from everport.ir.knobs import NO_CACHE, cache_dir
from everport.targets import Target

_warned = False


def cache_key(text: str, target: Target, opt: int) -> str:
    """The key of an object."""
    seed = "\n".join([BACKEND, target.level.triple, target.level.llvm_cpu, str(opt), text])
    return hashlib.sha256(seed.encode()).hexdigest()


def _path(key: str) -> Path:
    return cache_dir() / "kernels" / key[:2] / f"{key}.o"


def read(key: str) -> bytes | None:
    """The object of a key, or None."""
    if NO_CACHE.flag():
        return None
    try:
        data = _path(key).read_bytes()
    except OSError:
        return None
    digest, content = data[:32], data[32:]
    return content if hashlib.sha256(content).digest() == digest else None


def write(key: str, content: bytes) -> None:
    """Stores an object; a failure is reported once a process and otherwise harmless."""
    global _warned
    if NO_CACHE.flag():
        return
    path = _path(key)
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        with os.fdopen(handle, "wb") as file:
            file.write(hashlib.sha256(content).digest() + content)
        os.replace(temporary, path)
    except OSError as error:
        if temporary is not None and os.path.exists(temporary):
            os.unlink(temporary)
        if not _warned:
            _warned = True
            warnings.warn(f"the kernel cache cannot be written ({error}); compiling goes on without it", stacklevel=2)
