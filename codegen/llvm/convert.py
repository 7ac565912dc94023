"""Conversions between number types, in LLVM text: value to value, and memory to value and back.

bf16 and fp8 values are held as floats that are exactly representable in their type: `rounded` brings a float there (nearest
even; NaN stays NaN; too large becomes infinite, or NaN where the type has no infinity).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everport.codegen.llvm.types import literal, memory_type, splat, value_type
from everport.ir.dtype import DType, f32, i32, u32

_WIDE: dict[str, DType] = {"int": i32, "uint": u32}
_RANK = {"half": 0, "float": 1, "double": 2}
_FLOAT_SUFFIX = {"half": "f16", "float": "f32", "double": "f64"}


@dataclass(frozen=True, slots=True)
class Float8:
    """An 8-bit float: mantissa bits, exponent bias, largest finite value, the code of NaN, and whether code 0x80 is NaN
    (then there is no negative zero). `infinity` is its code, or None."""

    mantissa: int
    bias: int
    largest: float
    nan: int
    infinity: int | None = None
    unsigned_zero: bool = False


FLOAT8: dict[str, Float8] = {
    "f8e4m3fn": Float8(3, 7, 448.0, 0x7F),
    "f8e4m3fnuz": Float8(3, 8, 240.0, 0x80, unsigned_zero=True),
    "f8e5m2": Float8(2, 15, 57344.0, 0x7E, infinity=0x7C),
    "f8e5m2fnuz": Float8(2, 16, 57344.0, 0x80, unsigned_zero=True),
}


def vector(scalar: str, lanes: int) -> str:
    """An LLVM vector type, or the scalar for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


class Conversions:
    """Writes conversions through `assign` (an instruction to the name of its value) and `declare` (a function)."""

    def __init__(self, assign: Callable[[str], str], declare: Callable[[str], None]) -> None:
        self.assign = assign
        self.declare = declare

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
        if t.name in FLOAT8:
            return self.from_float8(raw, FLOAT8[t.name], lanes)
        return self.narrowed(raw, t, lanes)

    def to_memory(self, value: str, t: DType, lanes: int) -> str:
        """The element to store for a value."""
        if t.is_bool:
            return self.assign(f"zext {value_type(t, lanes)} {value} to {memory_type(t, lanes)}")
        if t.name == "bf16":
            ints = self.assign(f"bitcast {vector('float', lanes)} {value} to {vector('i32', lanes)}")
            top = self.assign(f"lshr {vector('i32', lanes)} {ints}, {splat('i32', '16', lanes)}")
            return self.assign(f"trunc {vector('i32', lanes)} {top} to {vector('i16', lanes)}")
        if t.name in FLOAT8:
            return self.to_float8(value, FLOAT8[t.name], lanes)
        if t.bits == 4:  # the low half of a byte
            return self.assign(f"and {vector('i8', lanes)} {value}, {splat('i8', '15', lanes)}")
        return value

    def narrowed(self, value: str, t: DType, lanes: int) -> str:
        """Wraps a 4-bit integer held in 8 bits."""
        if t.bits != 4:
            return value
        kind, four = value_type(t, lanes), splat("i8", "4", lanes)
        moved = self.assign(f"shl {kind} {value}, {four}")
        return self.assign(f"{'ashr' if t.kind == 'int' else 'lshr'} {kind} {moved}, {four}")

    # -- rounding ------------------------------------------------------------------------------------------------------

    def rounded(self, value: str, t: DType, lanes: int) -> str:
        """A float as the nearest value of `t`, for the types that are held as float; others are left as they are."""
        if t.name == "bf16":
            return self.round_bf16(value, lanes)
        if t.name in FLOAT8:
            return self.round_float8(value, FLOAT8[t.name], lanes)
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

    def round_float8(self, value: str, form: Float8, lanes: int) -> str:
        """Rounds to multiples of the step of the value's binade: the step is a power of two, so both products are exact."""
        ints, floats = vector("i32", lanes), vector("float", lanes)
        size = self._float_call("fabs", value, lanes)
        bits = self.assign(f"bitcast {floats} {size} to {ints}")
        exponent = self.assign(f"lshr {ints} {bits}, {splat('i32', '23', lanes)}")
        least = splat("i32", str(127 + 1 - form.bias), lanes)
        below = self.assign(f"icmp slt {ints} {exponent}, {least}")
        binade = self.assign(f"select {vector('i1', lanes)} {below}, {ints} {least}, {ints} {exponent}")
        step = self.assign(f"sub {ints} {binade}, {splat('i32', str(form.mantissa), lanes)}")
        inverse = self.assign(f"sub {ints} {splat('i32', '254', lanes)}, {step}")
        scales = []
        for e in (inverse, step):
            moved = self.assign(f"shl {ints} {e}, {splat('i32', '23', lanes)}")
            scales.append(self.assign(f"bitcast {ints} {moved} to {floats}"))
        units = self._float_call("roundeven", self.assign(f"fmul {floats} {size}, {scales[0]}"), lanes)
        near = self.assign(f"fmul {floats} {units}, {scales[1]}")
        over = self.assign(f"fcmp ogt {floats} {near}, {splat('float', literal(form.largest, f32), lanes)}")
        beyond = literal(float("inf") if form.infinity is not None else float("nan"), f32)
        near = self.assign(f"select {vector('i1', lanes)} {over}, {floats} {splat('float', beyond, lanes)}, {floats} {near}")
        suffix = ("" if lanes == 1 else f"v{lanes}") + "f32"
        self.declare(f"declare {floats} @llvm.copysign.{suffix}({floats}, {floats})")
        signed = self.assign(f"call {floats} @llvm.copysign.{suffix}({floats} {near}, {floats} {value})")
        if form.unsigned_zero:
            return self.assign(f"fadd {floats} {signed}, {splat('float', '0.0', lanes)}")  # -0 + 0 = 0
        return signed

    def _float_call(self, name: str, value: str, lanes: int) -> str:
        floats = vector("float", lanes)
        suffix = ("" if lanes == 1 else f"v{lanes}") + "f32"
        self.declare(f"declare {floats} @llvm.{name}.{suffix}({floats})")
        return self.assign(f"call {floats} @llvm.{name}.{suffix}({floats} {value})")

    def from_float8(self, raw: str, form: Float8, lanes: int) -> str:
        ints, floats, bits1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
        code = self.assign(f"zext {vector('i8', lanes)} {raw} to {ints}")
        size = self.assign(f"and {ints} {code}, {splat('i32', '127', lanes)}")
        moved = self.assign(f"shl {ints} {size}, {splat('i32', str(23 - form.mantissa), lanes)}")
        normal = self.assign(f"add {ints} {moved}, {splat('i32', str((127 - form.bias) << 23), lanes)}")
        count = self.assign(f"uitofp {ints} {size} to {floats}")
        unit = literal(2.0 ** (1 - form.bias - form.mantissa), f32)
        scaled = self.assign(f"fmul {floats} {count}, {splat('float', unit, lanes)}")
        small = self.assign(f"bitcast {floats} {scaled} to {ints}")
        tiny = self.assign(f"icmp ult {ints} {size}, {splat('i32', str(1 << form.mantissa), lanes)}")
        found = self.assign(f"select {bits1} {tiny}, {ints} {small}, {ints} {normal}")
        if form.infinity is not None:
            top = self.assign(f"icmp eq {ints} {size}, {splat('i32', str(form.infinity), lanes)}")
            found = self.assign(f"select {bits1} {top}, {ints} {splat('i32', str(0x7F800000), lanes)}, {ints} {found}")
            nan = self.assign(f"icmp ugt {ints} {size}, {splat('i32', str(form.infinity), lanes)}")
        elif form.unsigned_zero:
            nan = self.assign(f"icmp eq {ints} {code}, {splat('i32', '128', lanes)}")
        else:
            nan = self.assign(f"icmp eq {ints} {size}, {splat('i32', str(form.nan), lanes)}")
        found = self.assign(f"select {bits1} {nan}, {ints} {splat('i32', str(0x7FC00000), lanes)}, {ints} {found}")
        sign = self.assign(f"and {ints} {code}, {splat('i32', '128', lanes)}")
        high = self.assign(f"shl {ints} {sign}, {splat('i32', '24', lanes)}")
        return self.assign(f"bitcast {ints} {self.assign(f'or {ints} {found}, {high}')} to {floats}")

    def to_float8(self, value: str, form: Float8, lanes: int) -> str:
        ints, floats, bits1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
        size = self._float_call("fabs", value, lanes)
        bits = self.assign(f"bitcast {floats} {size} to {ints}")
        moved = self.assign(f"lshr {ints} {bits}, {splat('i32', str(23 - form.mantissa), lanes)}")
        normal = self.assign(f"sub {ints} {moved}, {splat('i32', str((127 - form.bias) << form.mantissa), lanes)}")
        per_unit = literal(2.0 ** (form.mantissa + form.bias - 1), f32)
        least = literal(2.0 ** (1 - form.bias), f32)
        tiny = self.assign(f"fcmp olt {floats} {size}, {splat('float', least, lanes)}")
        zero = splat("float", "0.0", lanes)
        counted = self.assign(f"select {bits1} {tiny}, {floats} {size}, {floats} {zero}")
        units = self.assign(f"fmul {floats} {counted}, {splat('float', per_unit, lanes)}")
        small = self.assign(f"fptoui {floats} {units} to {ints}")
        code = self.assign(f"select {bits1} {tiny}, {ints} {small}, {ints} {normal}")
        if form.infinity is not None:
            top = self.assign(f"fcmp oeq {floats} {size}, {splat('float', literal(float('inf'), f32), lanes)}")
            code = self.assign(f"select {bits1} {top}, {ints} {splat('i32', str(form.infinity), lanes)}, {ints} {code}")
        own = self.assign(f"bitcast {floats} {value} to {ints}")
        high = self.assign(f"lshr {ints} {own}, {splat('i32', '24', lanes)}")
        sign = self.assign(f"and {ints} {high}, {splat('i32', '128', lanes)}")
        code = self.assign(f"or {ints} {code}, {sign}")
        nan = self.assign(f"fcmp uno {floats} {value}, {value}")
        code = self.assign(f"select {bits1} {nan}, {ints} {splat('i32', str(form.nan), lanes)}, {ints} {code}")
        return self.assign(f"trunc {ints} {code} to {vector('i8', lanes)}")

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
            if target.is_float:
                return self.assign(f"uitofp {have} {value} to {want}")
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
        if target.bits == 4:
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
