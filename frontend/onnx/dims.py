"""Named dynamic dimensions: from ONNX dimension names to symbols, with what the user says about them."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx

from everport.ir.errors import CompileError
from everport.tir.expr import Const, Expr, Var

_UNNAMED = {"", "?", "-1", "None", "unk", "dynamic"}


@dataclass(frozen=True, slots=True)
class DimSpec:
    """What is known of a dimension: `lo` to `hi` (inclusive; equal: fixed) and a divisor."""

    lo: int = 1
    hi: int | None = None
    divisor: int = 1

    @staticmethod
    def of(value: int | tuple[int, int | None] | str | DimSpec) -> DimSpec:
        """From 8, (1, 64), "8", "1..64", "1.." or "%8==0"; a CompileError says what is accepted."""
        if isinstance(value, DimSpec):
            return value
        if isinstance(value, int):
            return DimSpec(value, value)
        if isinstance(value, tuple):
            return DimSpec(value[0], value[1])._checked()
        text = value.replace(" ", "")
        if re.fullmatch(r"\d+", text):
            return DimSpec(int(text), int(text))
        if match := re.fullmatch(r"(\d+)\.\.(\d*)", text):
            return DimSpec(int(match[1]), int(match[2]) if match[2] else None)._checked()
        if match := re.fullmatch(r"%(\d+)==0", text):
            return DimSpec(1, None, int(match[1]))._checked()
        raise CompileError(f"cannot read the dimension {value!r}", hint="write N, LO..HI, LO.. or %N==0")

    def _checked(self) -> DimSpec:
        if self.lo < 0 or (self.hi is not None and self.hi < self.lo) or self.divisor < 1:
            raise CompileError(f"the dimension range {self.lo}..{'' if self.hi is None else self.hi} is empty or negative")
        return self


@dataclass(slots=True)
class DimTable:
    """Symbols by ONNX dimension name. The user's `specs` may use the ONNX name or the symbol's readable name."""

    specs: Mapping[str, DimSpec] = field(default_factory=dict)
    symbols: dict[str, Expr] = field(default_factory=dict)
    ranges: dict[Var, DimSpec] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    names: dict[str, str] = field(default_factory=dict)  # readable -> as the model writes it

    def dimension(self, dim: onnx.TensorShapeProto.Dimension, value_name: str, axis: int) -> Expr:
        """The expression of one dimension of a model input."""
        if dim.HasField("dim_value") and dim.dim_value >= 0:
            return Const(dim.dim_value)
        raw = dim.dim_param if dim.HasField("dim_param") else ""
        if raw in _UNNAMED:
            raw = f"{readable(value_name)}_dim{axis}"
        if raw in self.symbols:
            return self.symbols[raw]
        name = readable(raw)
        while name in self.names:
            name += "_"
        self.names[name] = raw
        spec = None
        for key in (raw, name):
            if key in self.specs:
                self.used.add(key)
                spec = self.specs[key]
        if spec is not None and spec.hi == spec.lo:
            self.symbols[raw] = Const(spec.lo)
        else:
            symbol = Var(name)
            self.symbols[raw] = symbol
            self.ranges[symbol] = spec or DimSpec()
        return self.symbols[raw]

    def check_all_used(self) -> None:
        """A CompileError for a name that the user gave and no input has."""
        for key in self.specs:
            if key not in self.used:
                known = [*self.names, *(n for n in self.names.values() if n not in self.names)]
                close = difflib.get_close_matches(key, known, 1)
                hint = f"did you mean {close[0]!r}?" if close else f"dynamic dimensions: {', '.join(known) or 'none'}"
                raise CompileError(f"the model has no dynamic dimension {key!r}", hint=hint)


def readable(name: str) -> str:
    """A name as an identifier."""
    text = re.sub(r"\W+", "_", name).strip("_") or "n"
    return f"d{text}" if text[0].isdigit() else text
