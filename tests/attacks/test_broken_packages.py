"""Packages that were damaged or forged end in a RunError, never in a crash or a wrong answer."""

from __future__ import annotations

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support.models import perceptron

import everport
from everport.runtime import RunError, load
from everport.runtime.archive import write_archive
from everport.runtime.package import sha256


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everport.compile(perceptron(), output=tmp_path_factory.mktemp("attacks") / "m.everport")


def entries(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as z:
        return {n: z.read(n) for n in z.namelist()}


def forged(package: Path, target: Path, change: Callable[[dict[str, bytes]], None], rehash: bool = True) -> Path:
    """A package with changed entries, hashes made to fit."""
    data = entries(package)
    change(data)
    if rehash and "manifest.json" in data:
        try:
            manifest = json.loads(data["manifest.json"])
            for name in manifest.get("sha256", {}):
                if name in data:
                    manifest["sha256"][name] = sha256([data[name]])
            data["manifest.json"] = json.dumps(manifest).encode()
        except (ValueError, AttributeError, TypeError):
            pass  # the manifest itself is what was broken
    write_archive(target, [(n, len(d), [d]) for n, d in data.items()])
    return target


def edit_json(name: str, edit: Callable[[dict], None]) -> Callable[[dict[str, bytes]], None]:
    def change(data: dict[str, bytes]) -> None:
        value = json.loads(data[name])
        edit(value)
        data[name] = json.dumps(value).encode()

    return change


def test_the_forger_itself_is_sound(package: Path, tmp_path: Path) -> None:
    with load(forged(package, tmp_path / "same.everport", lambda data: None)) as model:
        assert model(np.zeros((1, 6), np.float32)).shape == (1, 3)


@pytest.mark.parametrize("keep", [0.0, 0.01, 0.3, 0.7, 0.99, 0.9999])
def test_truncated(package: Path, tmp_path: Path, keep: float) -> None:
    data = package.read_bytes()
    path = tmp_path / "t.everport"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(RunError):
        load(path)


def test_random_damage(package: Path, tmp_path: Path) -> None:
    data = package.read_bytes()
    source = np.random.default_rng(0)
    path = tmp_path / "d.everport"
    for _ in range(60):
        damaged = bytearray(data)
        for place in source.integers(0, len(data), 4):
            damaged[place] ^= int(source.integers(1, 256))
        path.write_bytes(damaged)
        try:
            with load(path, verify=True) as model:
                model(np.zeros((2, 6), np.float32))
        except RunError:
            continue


MANIFEST = {
    "newer major version": (lambda m: m.update(format=[99, 0]), "format 99.0"),
    "newer runtime": (lambda m: m.update(runtime=[9, 0]), "needs runtime 9.0"),
    "no format": (lambda m: m.pop("format"), "no format version"),
    "malformed format": (lambda m: m.update(format="1.0"), "no format version"),
    "no hashes": (lambda m: m.pop("sha256"), "no content hashes"),
    "missing CPU feature": (lambda m: m["target"].update(features=["warp_drive"]), "warp_drive"),
    "another machine": (lambda m: m["target"].update(architecture="z80"), "z80"),
}


@pytest.mark.parametrize("name", MANIFEST)
def test_manifest(package: Path, tmp_path: Path, name: str) -> None:
    edit, words = MANIFEST[name]
    with pytest.raises(RunError, match=words):
        load(forged(package, tmp_path / "f.everport", edit_json("manifest.json", edit)))


def first(p: dict, kind: str) -> list:
    return next(i for i in p["instructions"] if i[0] == kind)


PROGRAM = {
    "unknown kernel": lambda p: first(p, "launch").__setitem__(1, 99),
    "negative kernel": lambda p: first(p, "launch").__setitem__(1, -1),
    "unknown buffer": lambda p: first(p, "launch").__setitem__(2, [999]),
    "unknown instruction": lambda p: p["instructions"].append(["explode"]),
    "too few fields": lambda p: p["instructions"].append(["launch"]),
    "register before it is set": lambda p: p["instructions"].insert(0, ["let", "a", "b"]),
    "register twice": lambda p: p["instructions"].insert(0, ["dim", "batch", 0, 0]),
    "unknown input": lambda p: p["instructions"].insert(0, ["dim", "q", 7, 0]),
    "axis out of range": lambda p: p["instructions"].insert(0, ["dim", "q", 0, 9]),
    "unknown operation": lambda p: p["instructions"].insert(0, ["let", "q", ["**", 2, 2]]),
    "float": lambda p: p.update(arena=1.5),
    "huge number": lambda p: p.update(arena=2**70),
    "deep nesting": lambda p: p.update(arena=_deep(3000)),
    "arena missing": lambda p: p.pop("arena"),
    "null": lambda p: p.update(buffers=None),
    "unknown type": lambda p: p["inputs"][0].update(dtype="f7"),
    "weight out of range": lambda p: p["weights"][0].update(offset=10**9),
    "negative weight": lambda p: p["weights"][0].update(offset=-64),
    "weight of another shape": lambda p: p["weights"][0].update(shape=[1, 1]),
    "missing weight": lambda p: p["weights"][0].update(name="nobody"),
    "unknown buffer kind": lambda p: p["buffers"][0].update(kind="moon"),
    "check after launch": lambda p: p["instructions"].append(["dim", "late", 0, 0]),
}


def _deep(n: int) -> list:
    value: list = ["+", 1, 1]
    for _ in range(n):
        value = ["+", value, 1]
    return value


@pytest.mark.parametrize("name", PROGRAM)
def test_program(package: Path, tmp_path: Path, name: str) -> None:
    import sys

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20000)  # for writing the deep one
    try:
        path = forged(package, tmp_path / "f.everport", edit_json("program.json", PROGRAM[name]))
    finally:
        sys.setrecursionlimit(limit)
    with pytest.raises(RunError):
        load(path)


def _safetensors(header: object, data: bytes = b"") -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


WEIGHTS = {
    "empty": b"",
    "short": b"\1\2",
    "huge header": struct.pack("<Q", 2**60) + b"{}",
    "not JSON": struct.pack("<Q", 4) + b"nope",
    "a list": _safetensors([1]),
    "overlap": _safetensors(
        {"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}, "b": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}},
        b"123456",
    ),
    "gap": _safetensors({"a": {"dtype": "U8", "shape": [4], "data_offsets": [2, 6]}}, b"123456"),
    "size and shape disagree": _safetensors({"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}, b"1234"),
    "outside": _safetensors({"a": {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}}, b"12"),
    "negative": _safetensors({"a": {"dtype": "U8", "shape": [-4], "data_offsets": [0, 4]}}, b"1234"),
    "unknown type": _safetensors({"a": {"dtype": "F7", "shape": [4], "data_offsets": [0, 4]}}, b"1234"),
    "more data than tensors": _safetensors({}, b"1234"),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_weights(package: Path, tmp_path: Path, name: str) -> None:
    path = forged(package, tmp_path / "f.everport", lambda data: data.update({"weights.safetensors": WEIGHTS[name]}))
    with pytest.raises(RunError):
        load(path)


def test_native_code_must_have_its_hash(package: Path, tmp_path: Path) -> None:
    path = forged(package, tmp_path / "f.everport", lambda d: d.update({"cpu/model.so": b"\x7fELF" + b"0" * 500}), rehash=False)
    with pytest.raises(RunError, match="does not have the content"):
        load(path)


def test_native_code_that_is_none(package: Path, tmp_path: Path) -> None:
    path = forged(package, tmp_path / "f.everport", lambda d: d.update({"cpu/model.so": b"not a library"}))
    with pytest.raises(RunError, match="cannot be loaded"):
        load(path)


def test_changed_weights_are_found_by_verify(package: Path, tmp_path: Path) -> None:
    def change(data: dict[str, bytes]) -> None:
        weights = bytearray(data["weights.safetensors"])
        weights[-100] ^= 1
        data["weights.safetensors"] = bytes(weights)

    path = forged(package, tmp_path / "f.everport", change, rehash=False)
    with pytest.raises(RunError, match=r"weights\.safetensors"):
        load(path, verify=True)


@pytest.mark.parametrize("missing", ["manifest.json", "program.json", "cpu/model.so", "weights.safetensors"])
def test_missing_entries(package: Path, tmp_path: Path, missing: str) -> None:
    with pytest.raises(RunError):
        load(forged(package, tmp_path / "f.everport", lambda data: data.pop(missing)))


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "a/../../b", "a\\b", "C:x", "a//b"])
def test_names_that_leave(package: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(RunError, match="leaves the package"):
        load(forged(package, tmp_path / "f.everport", lambda data: data.update({name: b"x"})))


def test_compressed_entries(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.everport"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as z:
        for n, d in entries(package).items():
            z.writestr(n, d)
    with pytest.raises(RunError, match="compressed"):
        load(path)


def test_duplicated_entries(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "d.everport"
    items = [(n, len(d), [d]) for n, d in entries(package).items()]
    write_archive(path, [*items, items[0]])
    with pytest.raises(RunError, match="stands twice"):
        load(path)


def test_not_a_package(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no file"):
        load(tmp_path / "none.everport")
    with pytest.raises(RunError, match="folder"):
        load(tmp_path)
    path = tmp_path / "z.zip"
    with zipfile.ZipFile(path, "w") as z:
        z.writestr("hello.txt", "hi")
    with pytest.raises(RunError, match="not a package"):
        load(path)
