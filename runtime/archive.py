"""The container: a zip of stored entries whose data start at multiples of 64 bytes, the same bytes for the same content.

The writer streams; the reader maps the file and trusts no size that it has not checked.
"""

from __future__ import annotations

import mmap
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from .errors import RunError

ALIGN = 64
_TIME, _DATE = 0, (1 << 5) | 1  # 1980-01-01
_PADDING_ID = 0xD935
_LIMIT32 = 0xFFFFFFFF


def write_archive(path: str | os.PathLike, entries: Iterable[tuple[str, int, Iterable[bytes]]]) -> None:
    """Writes (name, size, chunks) entries; the file appears whole or not at all."""
    import tempfile  # not needed for reading, and slow to import

    target = Path(path)
    handle, temporary = tempfile.mkstemp(dir=target.parent or ".", prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            _write(file, entries)
        os.chmod(temporary, 0o644)
        os.replace(temporary, target)
    except BaseException:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def _write(file, entries: Iterable[tuple[str, int, Iterable[bytes]]]) -> None:  # noqa: ANN001
    directory = []
    for name, size, chunks in entries:
        start = file.tell()
        encoded = name.encode()
        big = size >= _LIMIT32
        extra64 = struct.pack("<HHQQ", 1, 16, size, size) if big else b""
        fixed = start + 30 + len(encoded) + len(extra64) + 4
        pad = -fixed % ALIGN
        extra = extra64 + struct.pack("<HH", _PADDING_ID, pad) + b"\0" * pad
        short = _LIMIT32 if big else size
        file.write(b"\0" * (30 + len(encoded) + len(extra)))
        crc, written = 0, 0
        for chunk in chunks:
            crc = zlib.crc32(chunk, crc)
            written += len(chunk)
            file.write(chunk)
        if written != size:
            raise ValueError(f"entry {name!r} has {written} bytes, {size} were announced")
        end = file.tell()
        file.seek(start)
        version = 45 if big else 20
        file.write(
            struct.pack("<IHHHHHIIIHH", 0x04034B50, version, 0, 0, _TIME, _DATE, crc, short, short, len(encoded), len(extra))
        )
        file.write(encoded + extra)
        file.seek(end)
        directory.append((encoded, size, crc, start))
    begin = file.tell()
    for encoded, size, crc, start in directory:
        big = size >= _LIMIT32 or start >= _LIMIT32
        extra = struct.pack("<HHQQQ", 1, 24, size, size, start) if big else b""
        short, place = (_LIMIT32, _LIMIT32) if big else (size, start)
        version = 45 if big else 20
        file.write(
            struct.pack(
                "<IHHHHHHIIIHHHHHII",
                0x02014B50, (3 << 8) | version, version, 0, 0, _TIME, _DATE, crc, short, short, len(encoded), len(extra),
                0, 0, 0, 0o100644 << 16, place,
            )
        )  # fmt: skip
        file.write(encoded + extra)
    length = file.tell() - begin
    count = len(directory)
    if begin >= _LIMIT32:
        place = file.tell()
        file.write(struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, count, count, length, begin))
        file.write(struct.pack("<IIQI", 0x07064B50, 0, place, 1))
    short = min(begin, _LIMIT32)
    file.write(struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, count, count, length, short, 0))


class Archive:
    """A mapped package file. `entries` are (offset, size) by name, every one inside the file and stored as it is."""

    def __init__(self, path: str | os.PathLike) -> None:
        self.path = Path(path)
        try:
            with open(self.path, "rb") as file:
                self.size = os.fstat(file.fileno()).st_size
                if self.size == 0:
                    raise RunError(f"{str(path)!r} is empty")
                self.map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise RunError(f"there is no file {str(path)!r}") from None
        except IsADirectoryError:
            raise RunError(f"{str(path)!r} is a folder, not a package") from None
        except PermissionError:
            raise RunError(f"{str(path)!r} cannot be read: permission denied") from None
        try:
            self.entries = dict(self._directory())
        except struct.error:
            raise RunError(f"{str(path)!r} is not a package: its directory is cut off") from None

    def _bad(self, why: str) -> RunError:
        return RunError(f"{str(self.path)!r} is not a valid package: {why}")

    def _directory(self) -> Iterator[tuple[str, tuple[int, int]]]:
        end = self.map.rfind(b"PK\x05\x06", max(0, self.size - 22 - 65535))
        if end < 0:
            raise self._bad("no zip directory was found (is the download complete?)")
        _, disk, _, here, count, length, begin, _ = struct.unpack_from("<IHHHHIIH", self.map, end)
        if disk or here != count:
            raise self._bad("it spans several disks")
        if begin == _LIMIT32:
            _, _, place, _ = struct.unpack_from("<IIQI", self.map, end - 20)
            if place + 56 > self.size:
                raise self._bad("its directory lies outside the file")
            _, _, _, _, _, _, _, count, length, begin = struct.unpack_from("<IQHHIIQQQQ", self.map, place)
        if begin + length > self.size:
            raise self._bad("its directory lies outside the file")
        position = begin
        names: set[str] = set()
        for _ in range(count):
            if position + 46 > self.size:
                raise self._bad("its directory is cut off")
            fields = struct.unpack_from("<IHHHHHHIIIHHHHHII", self.map, position)
            if fields[0] != 0x02014B50:
                raise self._bad("its directory is malformed")
            flags, method, packed, size, n, m, k, start = (fields[i] for i in (3, 4, 8, 9, 10, 11, 12, 16))
            raw = bytes(self.map[position + 46 : position + 46 + n])
            if size == _LIMIT32 or start == _LIMIT32:
                size, packed, start = struct.unpack_from("<QQQ", self.map, position + 46 + n + 4)
            position += 46 + n + m + k
            try:
                name = raw.decode()
            except UnicodeDecodeError:
                raise self._bad("an entry's name is not UTF-8") from None
            self._check_name(name, names)
            if method != 0 or packed != size or flags & 1:
                raise self._bad(f"entry {name!r} is compressed or encrypted")
            if start + 30 > self.size:
                raise self._bad(f"entry {name!r} lies outside the file")
            local = struct.unpack_from("<IHHHHHIIIHH", self.map, start)
            data = start + 30 + local[9] + local[10]
            if local[0] != 0x04034B50 or bytes(self.map[start + 30 : start + 30 + local[9]]) != raw:
                raise self._bad(f"entry {name!r} does not agree with the directory")
            if data + size > begin:
                raise self._bad(f"entry {name!r} lies outside the file")
            yield name, (data, size)

    def _check_name(self, name: str, names: set[str]) -> None:
        parts = name.split("/")
        if name.startswith("/") or "\\" in name or "\0" in name or any(p in ("", ".", "..") for p in parts) or ":" in name:
            raise self._bad(f"entry {name!r} has a name that leaves the package")
        if name in names:
            raise self._bad(f"entry {name!r} stands twice")
        names.add(name)

    def view(self, name: str) -> memoryview:
        """An entry's bytes, mapped."""
        if name not in self.entries:
            raise self._bad(f"the entry {name!r} is missing")
        start, size = self.entries[name]
        return memoryview(self.map)[start : start + size]

    def read(self, name: str, limit: int = 1 << 28) -> bytes:
        """An entry's bytes, copied; refuses entries over `limit`."""
        view = self.view(name)
        if len(view) > limit:
            raise self._bad(f"entry {name!r} of {len(view)} bytes is larger than it may be ({limit})")
        return bytes(view)
