"""Conversions between number types, in LLVM text: value to value, and memory to value and back.

bf16 and smaller floats are held as floats that are exactly representable in their type: `rounded` brings a float there (bf16:
nearest even, NaN stays NaN, too large becomes infinite; the others: small_float.py).
"""

from __future__ import annotations

from collections.abc import Callable

from everport.codegen.llvm.small_float import SmallFloats, is_small, vector
from everport.codegen.llvm.types import literal, memory_type, splat, value_type
from everport.ir.dtype import DType, f32, i32, u32

_WIDE: dict[str, DType] = {"int": i32, "uint": u32}
_RANK = {"half": 0, "float": 1, "double": 2}
_FLOAT_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


class Conversions:
    """Writes conversions through `assign` (an instruction to the name of its value) and `declare` (a function)."""

    def __init__(self, assign: Callable[[str], str], declare: Callable[[str], None]) -> None:
        self.assign = assign
        self.declare = declare
        self.small = SmallFloats(assign, declare)

    # -- memory --------------------------------------------------------------------------------------------------------

    def from_memory(self, raw: str, t: DType, lanes: int) -> str:
        """The value of an element as loaded."""
        if t.is_bool:
            return self.assign(f"icmp ne {memory_type(t, lanes)} {raw}, {splat('i8', '0', lanes)}")
        if t.name == "bf16":
            ints = vector("i32", lanes)
            wide = self.assign(f"zext {vector('i16', lanes)} {raw} to {ints}")
            moved = self.assign(f"shl {ints} {wide}, {splat('i32', '16', lanes)}")
            return self.assign(f"bitcast {ints} {moved} to {vector('float', lanes)}")
        if is_small(t):
            return self.small.decoded(raw, t, lanes)
        return self.narrowed(raw, t, lanes)

    def to_memory(self, value: str, t: DType, lanes: int) -> str:
        """The element to store for a value."""
        if t.is_bool:
            return self.assign(f"zext {value_type(t, lanes)} {value} to {memory_type(t, lanes)}")
        if t.name == "bf16":
            ints = self.assign(f"bitcast {vector('float', lanes)} {value} to {vector('i32', lanes)}")
            top = self.assign(f"lshr {vector('i32', lanes)} {ints}, {splat('i32', '16', lanes)}")
            return self.assign(f"trunc {vector('i32', lanes)} {top} to {vector('i16', lanes)}")
        if is_small(t):
            return self.small.encoded(value, t, lanes)
        if t.bits < 8:  # the low bits of a byte
            return self.assign(f"and {vector('i8', lanes)} {value}, {splat('i8', str((1 << t.bits) - 1), lanes)}")
        return value

    def narrowed(self, value: str, t: DType, lanes: int) -> str:
        """Wraps an integer of less than 8 bits held in 8."""
        if not t.is_int or t.bits >= 8:
            return value
        kind, spare = value_type(t, lanes), splat("i8", str(8 - t.bits), lanes)
        moved = self.assign(f"shl {kind} {value}, {spare}")
        return self.assign(f"{'ashr' if t.kind == 'int' else 'lshr'} {kind} {moved}, {spare}")

    # -- rounding ------------------------------------------------------------------------------------------------------

    def rounded(self, value: str, t: DType, lanes: int) -> str:
        """A float as the nearest value of `t`, for the types that are held as float; others are left as they are."""
        if t.name == "bf16":
            return self.round_bf16(value, lanes)
        if is_small(t):
            return self.small.rounded(value, t, lanes)
        return value

    def round_bf16(self, value: str, lanes: int) -> str:
        ints, floats = vector("i32", lanes), vector("float", lanes)
        bits = self.assign(f"bitcast {floats} {value} to {ints}")
        top = self.assign(f"lshr {ints} {bits}, {splat('i32', '16', lanes)}")
        odd = self.assign(f"and {ints} {top}, {splat('i32', '1', lanes)}")
        bias = self.assign(f"add {ints} {odd}, {splat('i32', '32767', lanes)}")
        moved = self.assign(f"add {ints} {bits}, {bias}")
        kept = self.assign(f"and {ints} {moved}, {splat('i32', '-65536', lanes)}")
        nan = self.assign(f"fcmp uno {floats} {value}, {value}")
        quiet = self.assign(f"or {ints} {bits}, {splat('i32', '4194304', lanes)}")
        quiet = self.assign(f"and {ints} {quiet}, {splat('i32', '-65536', lanes)}")
        chosen = self.assign(f"select {vector('i1', lanes)} {nan}, {ints} {quiet}, {ints} {kept}")
        return self.assign(f"bitcast {ints} {chosen} to {floats}")

    # -- value to value ------------------------------------------------------------------------------------------------

    def cast(self, value: str, source: DType, target: DType, lanes: int) -> str:
        """A conversion by value (tir.expr.Cast)."""
        if source == target:
            return value
        have, want = value_type(source, lanes), value_type(target, lanes)
        if target.is_bool:
            if source.is_float:
                return self.assign(f"fcmp une {have} {value}, {splat(value_type(source), literal(0.0, source), lanes)}")
            return self.assign(f"icmp ne {have} {value}, {splat(value_type(source), '0', lanes)}")
        if source.is_bool:
            if target.is_float:  # exact, but that f8e8m0 has no zero
                return self.rounded(self.assign(f"uitofp {have} {value} to {want}"), target, lanes)
            return self.assign(f"zext {have} {value} to {want}")
        if source.is_float and target.is_float:
            return self.float_to_float(value, source, target, lanes)
        if source.is_float:
            return self.float_to_int(value, source, target, lanes)
        if target.is_float:
            name = "sitofp" if source.kind == "int" else "uitofp"
            if target.bits < 32:
                wide = self.assign(f"{name} {have} {value} to {vector('float', lanes)}")
                return self.float_to_float(wide, f32, target, lanes)
            return self.assign(f"{name} {have} {value} to {want}")
        return self.int_to_int(value, source, target, lanes)

    def int_to_int(self, value: str, source: DType, target: DType, lanes: int) -> str:
        have, want = value_type(source, lanes), value_type(target, lanes)
        source_bits, target_bits = max(source.bits, 8), max(target.bits, 8)
        if target_bits < source_bits:
            value = self.assign(f"trunc {have} {value} to {want}")
        elif target_bits > source_bits:
            value = self.assign(f"{'sext' if source.kind == 'int' else 'zext'} {have} {value} to {want}")
        return self.narrowed(value, target, lanes)

    def float_to_float(self, value: str, source: DType, target: DType, lanes: int) -> str:
        have, want = value_type(source, lanes), value_type(target, lanes)
        a, b = _RANK[value_type(source)], _RANK[value_type(target)]
        if a < b:
            value = self.assign(f"fpext {have} {value} to {want}")
        elif a - b == 2:
            odd = self.float_rounded_to_odd(value, lanes)
            value = self.assign(f"fptrunc {vector('float', lanes)} {odd} to {want}")
        elif a > b and target.bits < 32 and value_type(target) == "float":
            value = self.float_rounded_to_odd(value, lanes)
        elif a > b:
            value = self.assign(f"fptrunc {have} {value} to {want}")
        return self.rounded(value, target, lanes)

    def float_rounded_to_odd(self, value: str, lanes: int) -> str:
        """A double as a float whose last bit records what was lost, so that a second rounding rounds the double itself."""
        floats, doubles, ints = vector("float", lanes), vector("double", lanes), vector("i32", lanes)
        near = self.assign(f"fptrunc {doubles} {value} to {floats}")
        back = self.assign(f"fpext {floats} {near} to {doubles}")
        lost = self.assign(f"fcmp one {doubles} {back}, {value}")
        bits = self.assign(f"bitcast {floats} {near} to {ints}")
        suffix = ("" if lanes == 1 else f"v{lanes}") + "f64"
        self.declare(f"declare {doubles} @llvm.fabs.{suffix}({doubles})")
        sizes = [self.assign(f"call {doubles} @llvm.fabs.{suffix}({doubles} {v})") for v in (back, value)]
        above = self.assign(f"fcmp ogt {doubles} {sizes[0]}, {sizes[1]}")
        step = self.assign(f"zext {vector('i1', lanes)} {above} to {ints}")
        down = self.assign(f"sub {ints} {bits}, {step}")
        odd = self.assign(f"or {ints} {down}, {splat('i32', '1', lanes)}")
        chosen = self.assign(f"select {vector('i1', lanes)} {lost}, {ints} {odd}, {ints} {bits}")
        return self.assign(f"bitcast {ints} {chosen} to {floats}")

    def float_to_int(self, value: str, source: DType, target: DType, lanes: int) -> str:
        """Truncates; saturates out of range; NaN gives 0."""
        have = value_type(source, lanes)
        if target.bits < 8:
            wide = _WIDE[target.kind]
            from_wide, kind = self.float_to_int(value, source, wide, lanes), value_type(wide, lanes)
            for op, edge in (("min", target.max_value), ("max", target.min_value)):
                bound = splat("i32", str(edge), lanes)
                compare = ("s" if target.kind == "int" else "u") + ("lt" if op == "min" else "gt")
                test = self.assign(f"icmp {compare} {kind} {from_wide}, {bound}")
                from_wide = self.assign(f"select {vector('i1', lanes)} {test}, {kind} {from_wide}, {kind} {bound}")
            return self.assign(f"trunc {kind} {from_wide} to {value_type(target, lanes)}")
        name = "fptosi" if target.kind == "int" else "fptoui"
        want = value_type(target, lanes)
        prefix = f"v{lanes}" if lanes > 1 else ""
        full = f"llvm.{name}.sat.{prefix}i{target.bits}.{prefix}{_FLOAT_SUFFIX[value_type(source)]}"
        self.declare(f"declare {want} @{full}({have})")
        return self.assign(f"call {want} @{full}({have} {value})")
