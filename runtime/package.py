"""The package file: what is in it, written and read (docs/package-format.md)."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from . import program as programs
from . import safetensors
from .archive import Archive, write_archive
from .errors import RunError

FORMAT = (1, 0)
RUNTIME_VERSION = (0, 1)
MAIN = b"from everport.runtime.main import main\n\nmain()\n"


def sha256(chunks: Iterable[bytes | memoryview]) -> str:
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def runtime_files() -> dict[str, bytes]:
    """The runtime's own sources, as a package carries them."""
    folder = Path(__file__).parent
    files = {f"everport/runtime/{p.name}": p.read_bytes() for p in sorted(folder.glob("*.py"))}
    return {"__main__.py": MAIN, "everport/__init__.py": b"", **files}


def write_package(
    path: str | os.PathLike,
    manifest: Mapping[str, Any],
    program: programs.Program,
    library: bytes,
    weights: list[Any],
    selftest: Mapping[str, Any],
) -> None:
    """Writes a package. `weights` are arrays in the order of program.weights; `selftest` maps input:NAME and output:NAME to
    arrays. Equal arguments give equal bytes."""
    header, size = safetensors.layout((w.name, w.dtype, w.shape, w.bytes) for w in program.weights)
    tests = sorted(selftest.items())
    test_header, test_size = safetensors.layout((n, _type_of(a), tuple(a.shape), a.nbytes) for n, a in tests)
    text = json.dumps(programs.to_json(program), separators=(",", ":")).encode()
    hashes = {
        "program.json": sha256([text]),
        "cpu/model.so": sha256([library]),
        "weights.safetensors": sha256(safetensors.chunks(header, weights)),
        "selftest.safetensors": sha256(safetensors.chunks(test_header, [a for _, a in tests])),
    }
    files = runtime_files()
    hashes.update({name: sha256([data]) for name, data in files.items()})
    full = {"format": list(FORMAT), "runtime": list(RUNTIME_VERSION), **manifest, "sha256": dict(sorted(hashes.items()))}
    manifest_text = json.dumps(full, indent=1, sort_keys=True).encode() + b"\n"
    entries: list[tuple[str, int, Iterable[bytes]]] = [(n, len(d), [d]) for n, d in files.items()]
    entries += [("manifest.json", len(manifest_text), [manifest_text]), ("program.json", len(text), [text])]
    entries.append(("cpu/model.so", len(library), [library]))
    entries.append(("selftest.safetensors", len(test_header) + test_size, safetensors.chunks(test_header, [a for _, a in tests])))
    entries.append(("weights.safetensors", len(header) + size, safetensors.chunks(header, weights)))
    write_archive(path, entries)


_SMALL_TYPES = {
    "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3fn", "float8_e4m3fnuz": "f8e4m3fnuz", "float8_e5m2": "f8e5m2",
    "float8_e5m2fnuz": "f8e5m2fnuz", "float8_e8m0fnu": "f8e8m0", "float6_e2m3fn": "f6e2m3", "float6_e3m2fn": "f6e3m2",
    "float4_e2m1fn": "f4e2m1", "int4": "i4", "uint4": "u4", "int2": "i2", "uint2": "u2", "bool": "bool",
}  # fmt: skip


def _type_of(array: Any) -> str:
    """Everport's name of an array's type."""
    name = array.dtype.name
    return _SMALL_TYPES.get(name) or f"{array.dtype.kind}{array.dtype.itemsize * 8}"


class Package:
    """An opened package: manifest, program and places of the rest, all checked."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.archive = Archive(path)
        self.path = Path(path)
        if "manifest.json" not in self.archive.entries:
            raise RunError(f"{str(path)!r} is a zip file, but not a package: it has no manifest.json")
        self.manifest = self._json("manifest.json", 1 << 24)
        self._check_manifest()
        self.program = programs.from_json(self._json("program.json", 1 << 28))
        self._check_weights()

    def _json(self, name: str, limit: int) -> Any:
        try:
            return json.loads(self.archive.read(name, limit))
        except (ValueError, RecursionError):
            raise RunError(f"{str(self.path)!r}: {name} is not JSON") from None

    def _check_manifest(self) -> None:
        m = self.manifest
        shown = str(self.path)
        if not isinstance(m, dict) or not _version(m.get("format")) or not _version(m.get("runtime")):
            raise RunError(f"{shown!r}: manifest.json has no format version")
        if m["format"][0] > FORMAT[0]:
            raise RunError(
                f"{shown!r} has package format {m['format'][0]}.{m['format'][1]}; this runtime reads up to {FORMAT[0]}.x: "
                "install a newer everport",
                "version",
            )
        if tuple(m["runtime"]) > RUNTIME_VERSION:
            raise RunError(
                f"{shown!r} needs runtime {m['runtime'][0]}.{m['runtime'][1]} or newer, this is "
                f"{RUNTIME_VERSION[0]}.{RUNTIME_VERSION[1]}: install a newer everport",
                "version",
            )
        target = m.get("target")
        features = target.get("features", []) if isinstance(target, dict) else None
        if not isinstance(features, list) or not all(isinstance(f, str) for f in features):
            raise RunError(f"{shown!r}: manifest.json names no target with a list of CPU features")
        hashes = m.get("sha256")
        if not isinstance(hashes, dict):
            raise RunError(f"{shown!r}: manifest.json has no content hashes")
        for name in ("program.json", "cpu/model.so"):
            if sha256([self.archive.view(name)]) != hashes.get(name):
                raise RunError(f"{shown!r}: {name} does not have the content that the manifest names")

    def _check_weights(self) -> None:
        view = self.archive.view("weights.safetensors")
        tensors, self.weights_start = safetensors.read(view, f"{str(self.path)!r}: weights.safetensors")
        data = self.archive.entries["weights.safetensors"][0] + self.weights_start
        for w in self.program.weights:
            if tensors.get(w.name) != (safetensors.TYPES[w.dtype], w.shape, w.offset, w.offset + w.bytes):
                raise RunError(f"{str(self.path)!r}: weight {w.name!r} is not where the program expects it")
            if (data + w.offset) % safetensors.ALIGN:  # kernels load whole aligned vectors from the mapped file
                raise RunError(
                    f"{str(self.path)!r}: weight {w.name!r} does not start at a multiple of {safetensors.ALIGN} bytes; "
                    "was the package repacked by another program?"
                )

    def verify(self) -> None:
        """Compares the content hash of every entry; a RunError names the one that differs."""
        for name, expected in self.manifest["sha256"].items():
            if sha256([self.archive.view(name)]) != expected:
                raise RunError(f"{str(self.path)!r}: {name} does not have the content that the manifest names")

    def check_cpu(self) -> None:
        """A RunError that names each required CPU feature that this machine lacks."""
        target = self.manifest.get("target", {})
        machine = {"amd64": "x86_64", "arm64": "aarch64"}.get(platform.machine().lower(), platform.machine().lower())
        wanted = target.get("architecture") if isinstance(target, dict) else None
        if wanted != machine or not sys.platform.startswith("linux"):
            raise RunError(f"{str(self.path)!r} is for {wanted} on Linux; this machine is {machine} on {sys.platform}", "cpu")
        have = cpu_features()
        missing = [f for f in target.get("features", []) if f not in have]
        if missing:
            raise RunError(
                f"{str(self.path)!r} needs CPU features that this machine lacks: {', '.join(missing)}; "
                f"compile it for a lower level (--target cpu:x86-64-v2)",
                "cpu",
            )


def _version(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(v, int) and v >= 0 for v in value)


def cpu_features() -> set[str]:
    """The processor's feature names, as Linux lists them."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return set()
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return set(value.split())
    return set()
