"""Packages forged field by field: every one is refused with a RunError, or runs and gives the right numbers."""

from __future__ import annotations

import copy
import json
import random
import struct
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support.models import perceptron

import everport
from everport.runtime import RunError, load
from everport.runtime import program as programs
from everport.runtime.archive import Archive, write_archive
from everport.runtime.package import Package, sha256

ENTRIES = {
    "manifest": "manifest.json", "program": "program.json", "model": "cpu/model.so", "weights": "weights.safetensors",
}  # fmt: skip
CENTRAL, LOCAL, END = b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return everport.compile(perceptron(), output=tmp_path_factory.mktemp("forged") / "m.everport")


@pytest.fixture(scope="module")
def parts(package: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(package) as z:
        return {n: z.read(n) for n in z.namelist()}


def forge(parts: dict[str, bytes], target: Path, **changed: bytes) -> Path:
    """The package with some entries replaced, hashes made to fit."""
    data = dict(parts)
    for word, content in changed.items():
        data[ENTRIES[word]] = content
    if "manifest" not in changed:
        manifest = json.loads(data["manifest.json"])
        manifest["sha256"] = {n: sha256([data[n]]) for n in manifest["sha256"]}
        data["manifest.json"] = json.dumps(manifest).encode()
    write_archive(target, [(n, len(d), [d]) for n, d in data.items()])
    return target


# -- the host program and the manifest, damaged at random -----------------------------------------------------------------

STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2**31, 2**63, -(2**63) - 1, 1.5, float("nan"), float("inf"), "", "batch", "\0", "launch", [], [[]], {},
    ["+", 1], ["+"], [["+"], 1, 1], ["//", 1, 0], ["select", 1, 2], {"name": 1}, [None], [{}, 1, 2],
]  # fmt: skip


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every (container, key) of a JSON value."""
    stack = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, (dict, list)):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            for k in keys:
                yield node, k
                stack.append(node[k])


def damaged(value: Any, source: random.Random) -> Any:
    value = copy.deepcopy(value)
    for _ in range(source.choice((1, 1, 1, 2, 3))):
        container, key = source.choice(list(places(value)))
        action = source.randrange(4)
        if action == 0:
            del container[key]
        elif action == 1 and isinstance(container, list):
            container.insert(key, copy.deepcopy(container[key]))
        elif action == 2:
            _, other = source.choice(list(places(value)))
            container[key] = copy.deepcopy(other)
        else:
            container[key] = copy.deepcopy(source.choice(STRANGE))
    return value


def test_programs_damaged_at_random(parts: dict[str, bytes]) -> None:
    """The reader refuses or gives a program of which every part can be printed and evaluated."""
    original = json.loads(parts["program.json"])
    source, accepted = random.Random(0), 0
    for _ in range(3000):
        try:
            program = programs.from_json(damaged(original, source))
        except RunError:
            continue
        accepted += 1
        assert programs.script(program) and programs.to_json(program)
        shapes = [(2,) * len(i.shape) for i in program.inputs]
        registers = programs.bind_dims(program, shapes)
        assert isinstance(programs.evaluate(program.arena, registers), int)
        for launch in program.launches:
            assert all(isinstance(programs.evaluate(e, registers), int) for e in launch.ints)
    assert 0 < accepted < 2000


def test_manifests_damaged_at_random(package: Path, parts: dict[str, bytes], monkeypatch: pytest.MonkeyPatch) -> None:
    original, opened = json.loads(parts["manifest.json"]), Package(package)
    source = random.Random(1)
    for _ in range(1500):
        manifest = damaged(original, source)
        monkeypatch.setattr(opened, "_json", lambda name, limit, manifest=manifest: manifest)
        opened.manifest = manifest
        try:
            opened._check_manifest()
            opened.check_cpu()
        except RunError:
            continue


def test_weight_headers_damaged_at_random(parts: dict[str, bytes], tmp_path: Path) -> None:
    raw = parts["weights.safetensors"]
    size = struct.unpack_from("<Q", raw)[0]
    header, data = json.loads(raw[8 : 8 + size]), raw[8 + size :]
    source = random.Random(2)
    for _ in range(150):
        changed = damaged(header, source)
        if isinstance(changed, dict) and any(isinstance(e, dict) and isinstance(e.get("dtype"), (list, dict)) for e in changed.values()):
            continue  # see test_a_weight_type_that_is_no_word
        path = forge(parts, tmp_path / "w.everport", weights=with_header(changed, data))
        try:
            package = Package(path)
        except RunError:
            continue
        where = {w.name: package.weights_start + w.offset for w in package.program.weights}
        assert all(package.archive.view("weights.safetensors")[p : p + 1] for p in where.values())


def with_header(header: Any, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize("kind", [[], {}])
def test_a_weight_type_that_is_no_word(parts: dict[str, bytes], tmp_path: Path, kind: Any) -> None:
    raw = with_header({"a": {"dtype": kind, "shape": [4], "data_offsets": [0, 4]}}, b"1234")
    with pytest.raises(RunError, match="unknown type"):
        load(forge(parts, tmp_path / "k.everport", weights=raw))


PROGRAM: dict[str, Callable[[dict], Any]] = {
    "buffers of a launch": lambda p: _first(p, "launch").__setitem__(2, 5),
    "integers of a launch": lambda p: _first(p, "launch").__setitem__(3, 5),
    "a shape that is a number": lambda p: p["inputs"][0].update(shape=5),
    "a shape of nothing": lambda p: p["outputs"][0].update(shape=[None]),
    "a shape of floats": lambda p: p["weights"][0].update(shape=[1.5]),
    "an object for an operation": lambda p: p.update(arena=[{}, 1, 2]),
    "an instruction that is a word": lambda p: p["instructions"].append("launch"),
    "a name that is a list": lambda p: p["inputs"][0].update(name=["x"]),
    "too many dimensions": lambda p: p["inputs"][0].update(shape=[1] * 40),
    "a list for the whole": lambda p: p.clear(),
}


def _first(p: dict, kind: str) -> list:
    return next(i for i in p["instructions"] if i[0] == kind)


@pytest.mark.parametrize("name", PROGRAM)
def test_fields_of_the_wrong_kind(parts: dict[str, bytes], tmp_path: Path, name: str) -> None:
    value = json.loads(parts["program.json"])
    PROGRAM[name](value)
    with pytest.raises(RunError, match="host program"):
        load(forge(parts, tmp_path / "f.everport", program=json.dumps(value).encode()))


@pytest.mark.parametrize(
    "target", [None, [], "x86_64", {"architecture": "x86_64", "features": 5}, {"architecture": "x86_64", "features": [{}]}]
)
def test_targets_of_the_wrong_kind(parts: dict[str, bytes], tmp_path: Path, target: Any) -> None:
    manifest = json.loads(parts["manifest.json"])
    manifest["target"] = target
    with pytest.raises(RunError, match="target"):
        load(forge(parts, tmp_path / "f.everport", manifest=json.dumps(manifest).encode()))


@pytest.mark.parametrize("text", [b"", b"{", b"[" * 100_000, b"\xff\xfe", b"1" * 10_000, b'{"a": 1}', b"[]", b"null", b"NaN"])
def test_manifests_that_are_none(parts: dict[str, bytes], tmp_path: Path, text: bytes) -> None:
    with pytest.raises(RunError, match=r"manifest\.json"):
        load(forge(parts, tmp_path / "f.everport", manifest=text))


# -- weights and native code ------------------------------------------------------------------------------------------------


def test_a_repacked_package_is_refused(parts: dict[str, bytes], tmp_path: Path) -> None:
    """A zip program puts the weights at odd places: kernels that load aligned vectors would crash."""
    path = tmp_path / "r.everport"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        for n, d in {"a": b"x", **parts}.items():
            z.writestr(n, d)
    start, _ = Archive(path).entries["weights.safetensors"]
    assert start % 64  # else this test shows nothing
    with pytest.raises(RunError, match="repacked"):
        load(path)


def test_a_weight_header_of_odd_length(parts: dict[str, bytes], tmp_path: Path) -> None:
    raw = parts["weights.safetensors"]
    size = struct.unpack_from("<Q", raw)[0]
    longer = struct.pack("<Q", size + 4) + raw[8 : 8 + size] + b"    " + raw[8 + size :]
    with pytest.raises(RunError, match="does not start at a multiple of 64"):
        load(forge(parts, tmp_path / "o.everport", weights=longer))


def test_weights_of_another_type(parts: dict[str, bytes], tmp_path: Path) -> None:
    raw = parts["weights.safetensors"].replace(b'"F32"', b'"I32"')
    with pytest.raises(RunError, match="not where the program expects it"):
        load(forge(parts, tmp_path / "t.everport", weights=raw))


def test_a_library_that_is_no_model(parts: dict[str, bytes], tmp_path: Path) -> None:
    other = next((p for p in Path("/usr/lib").rglob("libm.so.6") if p.read_bytes()[:4] == b"\x7fELF"), None)
    if other is None:
        pytest.skip("no other shared library was found")
    with pytest.raises(RunError, match=r"no compiled model|cannot be loaded"):
        load(forge(parts, tmp_path / "l.everport", model=other.read_bytes()))


# -- the container, byte by byte --------------------------------------------------------------------------------------------


def patched(package: Path, target: Path, signature: bytes, offset: int, form: str, value: int, last: bool = False) -> Path:
    """The file with one number of one record replaced."""
    data = bytearray(package.read_bytes())
    place = data.rfind(signature) if last else data.find(signature)
    struct.pack_into(form, data, place + offset, value)
    target.write_bytes(data)
    return target


@pytest.mark.parametrize(
    ("signature", "offset", "form", "value"),
    [
        (CENTRAL, 8, "<H", 1),  # encrypted
        (CENTRAL, 10, "<H", 8),  # compressed
        (CENTRAL, 20, "<I", 7),  # packed size
        (CENTRAL, 24, "<I", 7),  # size
        (CENTRAL, 24, "<I", 0xFFFFFFFF),  # a 64-bit size that is not there
        (CENTRAL, 28, "<H", 0xFFFF),  # length of the name
        (CENTRAL, 30, "<H", 0xFFFF),  # length of the extra field
        (CENTRAL, 42, "<I", 0x7FFFFFFF),  # place
        (CENTRAL, 42, "<I", 1),
        (LOCAL, 26, "<H", 3),  # length of the name
        (LOCAL, 28, "<H", 0xFFFF),  # length of the extra field
        (END, 4, "<H", 2),  # number of disks
        (END, 8, "<H", 1),
        (END, 12, "<I", 0x7FFFFFFF),  # size of the directory
        (END, 16, "<I", 0x7FFFFFFF),  # place of the directory
        (END, 16, "<I", 0xFFFFFFFF),
        (END, 16, "<I", 0),
    ],
)
def test_records(package: Path, tmp_path: Path, signature: bytes, offset: int, form: str, value: int) -> None:
    last = signature == END
    with pytest.raises(RunError):
        load(patched(package, tmp_path / "z.everport", signature, offset, form, value, last), verify=True)


def test_every_kind_of_damage_to_the_directory(package: Path, tmp_path: Path) -> None:
    """Single bytes of the directory changed: refused, or without effect on what is read."""
    data = package.read_bytes()
    begin = data.find(CENTRAL)
    source = random.Random(3)
    path = tmp_path / "d.everport"
    for place in source.sample(range(begin, len(data)), 400):
        changed = bytearray(data)
        changed[place] ^= source.randrange(1, 256)
        path.write_bytes(changed)
        try:
            opened = Package(path)
            opened.verify()
        except RunError:
            continue
        assert opened.manifest["format"] == [1, 0]
