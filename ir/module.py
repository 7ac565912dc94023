"""IRModule: functions of every level under unique names, immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from everport.ir.node import Node, structural_equal


@dataclass(frozen=True, slots=True, eq=False)
class IRModule:
    """Named functions (relax functions and TIR PrimFuncs side by side) and attributes, in insertion order."""

    functions: Mapping[str, Node]
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", MappingProxyType(dict(self.functions)))
        object.__setattr__(self, "attrs", MappingProxyType(dict(self.attrs)))

    def __getitem__(self, name: str) -> Any:
        if name not in self.functions:
            raise KeyError(f"no function {name!r} in the module; it has: {', '.join(self.functions) or 'none'}")
        return self.functions[name]

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def items(self) -> Any:
        return self.functions.items()

    def with_functions(self, changes: Mapping[str, Node | None]) -> IRModule:
        """A module with functions replaced, added, or (None) removed; itself if nothing changes."""
        if all(self.functions.get(n) is f for n, f in changes.items()):
            return self
        merged = {**self.functions, **changes}
        return IRModule({n: f for n, f in merged.items() if f is not None}, self.attrs)

    def with_attrs(self, **changes: Any) -> IRModule:
        return IRModule(self.functions, {**self.attrs, **changes})

    def of_type(self, cls: type) -> dict[str, Any]:
        """The functions of one class (relax.Function, tir.PrimFunc) by name."""
        return {n: f for n, f in self.functions.items() if isinstance(f, cls)}

    def unique_name(self, base: str) -> str:
        """`base`, or `base_1`, `base_2`, ...: the first name that is free."""
        if base not in self.functions:
            return base
        number = 1
        while f"{base}_{number}" in self.functions:
            number += 1
        return f"{base}_{number}"


def modules_equal(a: IRModule, b: IRModule) -> bool:
    """True if both hold structurally equal functions under the same names."""
    return list(a.functions) == list(b.functions) and all(structural_equal(a[n], b[n]) for n in a)
