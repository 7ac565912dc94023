"""CPU levels: the feature sets that packages are compiled for, and which of them this machine has."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class CpuLevel:
    """One level: LLVM's triple and CPU name, the features a machine must have (as Linux names them in /proc/cpuinfo), the
    vector width in bits, and the number of vector registers."""

    name: str
    triple: str
    llvm_cpu: str
    features: tuple[str, ...]
    vector_bits: int
    vector_registers: int


_V2 = ("cx16", "popcnt", "ssse3", "sse4_1", "sse4_2")
_V3 = (*_V2, "avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
_V4 = (*_V3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")

CPU_LEVELS: dict[str, CpuLevel] = {
    level.name: level
    for level in (
        CpuLevel("x86-64-v2", "x86_64-unknown-linux-gnu", "x86-64-v2", _V2, 128, 16),
        CpuLevel("x86-64-v3", "x86_64-unknown-linux-gnu", "x86-64-v3", _V3, 256, 16),
        CpuLevel("x86-64-v4", "x86_64-unknown-linux-gnu", "x86-64-v4", _V4, 512, 32),
        CpuLevel("aarch64", "aarch64-unknown-linux-gnu", "generic", ("asimd",), 128, 32),
    )
}


def cpu_flags() -> frozenset[str]:
    """The feature names of the first processor; empty where the system doesn't tell."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return frozenset()
    for line in path.read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def host_level() -> CpuLevel:
    """The highest level that this machine has."""
    machine = platform.machine().lower()
    if machine in ("aarch64", "arm64"):
        return CPU_LEVELS["aarch64"]
    flags = cpu_flags()
    fitting = [level for level in CPU_LEVELS.values() if level.triple.startswith("x86_64") and set(level.features) <= flags]
    return fitting[-1] if fitting else CPU_LEVELS["x86-64-v2"]
