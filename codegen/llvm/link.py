"""Objects to one shared library, by the linker that is there."""

from __future__ import annotations

import functools
import importlib.util
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from everport.codegen.llvm.math import LIBM
from everport.codegen.llvm.object import compile_object
from everport.ir.errors import CompileError
from everport.ir.knobs import LINKER
from everport.targets import Target

# What libraries may need of the C library, by the name of the shared object that has it.
SYSTEM: dict[str, tuple[str, ...]] = {
    "libm.so.6": tuple(name + suffix for name in (*LIBM, "fma", "round") for suffix in ("", "f")),
    "libc.so.6": (
        "calloc", "clock_gettime", "free", "memcpy", "memmove", "memset", "pthread_create", "pthread_join", "syscall",
    ),
}  # fmt: skip
_ZIG_EMULATION = {"x86_64": "elf_x86_64", "aarch64": "aarch64linux"}


def find_linker(target: Target) -> tuple[str, list[str]]:
    """Name and command of the first linker there is: ld, cc, then the Python package ziglang. A CompileError names them."""
    chosen = LINKER.text()
    architecture = target.level.triple.partition("-")[0]
    zig = [sys.executable, "-m", "ziglang", "ld.lld", "-m", _ZIG_EMULATION[architecture]]
    native = architecture == _host_architecture()
    table: dict[str, list[str] | None] = {
        "ld": [ld] if (ld := shutil.which("ld")) and native else None,
        "cc": [cc, "-nostdlib", "-Wl,--build-id=none"] if (cc := shutil.which("cc")) and native else None,
        "ziglang": zig if importlib.util.find_spec("ziglang") else None,
    }
    if chosen:
        if chosen in table:
            command = table[chosen]
            if command is None:
                raise CompileError(f"the linker {chosen!r} that EVERPORT_LINKER names is not there")
            return chosen, command
        if shutil.which(chosen) is None:
            raise CompileError(f"the linker {chosen!r} that EVERPORT_LINKER names is not there")
        return chosen, [chosen]
    for name, command in table.items():
        if command is not None:
            return name, command
    raise CompileError(
        "no linker was found: neither ld nor cc is on PATH, and the Python package ziglang is not installed",
        hint="install binutils (ld) or a C compiler with the system's package manager, or run: pip install 'everport[link]'",
    )


def _host_architecture() -> str:
    return {"arm64": "aarch64", "amd64": "x86_64"}.get(platform.machine().lower(), platform.machine().lower())


def link_library(objects: Sequence[bytes], target: Target, exports: Sequence[str]) -> bytes:
    """A shared library of the objects in order; it exports only `exports`. Equal input gives equal bytes.

    What it needs of the C library is recorded as such (without the C library's files: stand-ins name its functions), and
    anything else that is undefined is an error here rather than at load time.
    """
    name, command = find_linker(target)
    with tempfile.TemporaryDirectory(prefix="everport-link-") as folder:
        paths = []
        for number, data in enumerate(objects):
            path = Path(folder) / f"{number:04d}.o"
            path.write_bytes(data)
            paths.append(path.name)
        for soname, data in _stand_ins(target):
            path = Path(folder) / soname
            (Path(folder) / "stand-in.o").write_bytes(data)
            shared = ["-shared", "-o", soname]
            shared += [f"-Wl,-soname,{soname}"] if name == "cc" else ["-soname", soname]
            _run([*command, *shared, "stand-in.o"], name, folder)
            paths.append(soname)
        script = Path(folder) / "exports.map"
        script.write_text("{ global: " + " ".join(f"{e};" for e in exports) + " local: *; };\n")
        flags = ["-shared", "-o", "model.so"]
        passed = ["--version-script=exports.map", "--as-needed", "-z", "defs", "-z", "noexecstack", "-z", "max-page-size=16384", "--hash-style=gnu", "-s"]
        if name == "cc":
            flags += [f"-Wl,{','.join(passed)}"]
        else:
            flags += [*passed, "--build-id=none"]
        _run([*command, *flags, *paths], name, folder)
        return (Path(folder) / "model.so").read_bytes()


def _run(command: list[str], name: str, folder: str) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompileError(f"the linker {name!r} failed: {done.stderr.strip() or done.stdout.strip()}")


@functools.cache
def _stand_ins(target: Target) -> tuple[tuple[str, bytes], ...]:
    """Objects that define the functions of SYSTEM, by shared object."""
    made = []
    for soname, symbols in SYSTEM.items():
        text = "\n".join(f"define void @{s}() {{ ret void }}" for s in symbols)
        made.append((soname, compile_object(text, target, 1)))
    return tuple(made)
