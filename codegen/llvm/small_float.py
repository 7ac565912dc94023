"""Floats of 8 bits and less in LLVM text: held as floats that are exactly representable in their type, stored as codes.

`rounded` brings a float there: to nearest even, NaN stays NaN, and what is too large becomes infinite, or NaN where the type
has no infinity. A type without NaN takes its largest value instead, and for NaN a zero of the opposite sign (as ml_dtypes does).
f8e8m0 holds 2**-127 to 2**127: ties round up, what is positive and too small gives the least value, the rest NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from everport.codegen.llvm.types import literal, splat
from everport.ir.dtype import DType, f32

E8M0 = "f8e8m0"


@dataclass(frozen=True, slots=True)
class Form:
    """A format with a sign: mantissa bits, exponent bias, largest finite value, the code of NaN (None: no NaN), and whether
    the code of -0 is NaN (then there is no negative zero). `infinity` is its code, or None."""

    mantissa: int
    bias: int
    largest: float
    nan: int | None = None
    infinity: int | None = None
    unsigned_zero: bool = False
    bits: int = 8


FORMS: dict[str, Form] = {
    "f8e4m3fn": Form(3, 7, 448.0, 0x7F),
    "f8e4m3fnuz": Form(3, 8, 240.0, 0x80, unsigned_zero=True),
    "f8e5m2": Form(2, 15, 57344.0, 0x7E, infinity=0x7C),
    "f8e5m2fnuz": Form(2, 16, 57344.0, 0x80, unsigned_zero=True),
    "f6e2m3": Form(3, 1, 7.5, bits=6),
    "f6e3m2": Form(2, 3, 28.0, bits=6),
    "f4e2m1": Form(1, 1, 6.0, bits=4),
}


def is_small(t: DType) -> bool:
    """True for the types of this file."""
    return t.name in FORMS or t.name == E8M0


def vector(scalar: str, lanes: int) -> str:
    """An LLVM vector type, or the scalar for one lane."""
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


class SmallFloats:
    """Writes instructions through `assign` (an instruction to the name of its value) and `declare` (a function)."""

    def __init__(self, assign: Callable[[str], str], declare: Callable[[str], None]) -> None:
        self.assign = assign
        self.declare = declare

    def rounded(self, value: str, t: DType, lanes: int) -> str:
        """A float as the nearest value of `t`."""
        return self._round_power(value, lanes) if t.name == E8M0 else self._round(value, FORMS[t.name], lanes)

    def decoded(self, raw: str, t: DType, lanes: int) -> str:
        """The float that a code stands for."""
        return self._decode_power(raw, lanes) if t.name == E8M0 else self._decode(raw, FORMS[t.name], lanes)

    def encoded(self, value: str, t: DType, lanes: int) -> str:
        """The code of a float that is a value of `t`."""
        return self._encode_power(value, lanes) if t.name == E8M0 else self._encode(value, FORMS[t.name], lanes)

    def _call(self, name: str, lanes: int, *values: str) -> str:
        floats = vector("float", lanes)
        full = f"llvm.{name}.{'' if lanes == 1 else f'v{lanes}'}f32"
        self.declare(f"declare {floats} @{full}({', '.join([floats] * len(values))})")
        return self.assign(f"call {floats} @{full}({', '.join(f'{floats} {v}' for v in values)})")

    # -- formats with a sign -------------------------------------------------------------------------------------------

    def _round(self, value: str, form: Form, lanes: int) -> str:
        """Rounds to multiples of the step of the value's binade: the step is a power of two, so both products are exact."""
        ints, floats, bits1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
        size = self._call("fabs", lanes, value)
        bits = self.assign(f"bitcast {floats} {size} to {ints}")
        exponent = self.assign(f"lshr {ints} {bits}, {splat('i32', '23', lanes)}")
        least = splat("i32", str(127 + 1 - form.bias), lanes)
        below = self.assign(f"icmp slt {ints} {exponent}, {least}")
        binade = self.assign(f"select {bits1} {below}, {ints} {least}, {ints} {exponent}")
        if form.mantissa == 1:  # the inverse of infinity's step would be 0
            top = self.assign(f"icmp eq {ints} {binade}, {splat('i32', '255', lanes)}")
            binade = self.assign(f"select {bits1} {top}, {ints} {splat('i32', '254', lanes)}, {ints} {binade}")
        step = self.assign(f"sub {ints} {binade}, {splat('i32', str(form.mantissa), lanes)}")
        inverse = self.assign(f"sub {ints} {splat('i32', '254', lanes)}, {step}")
        scales = []
        for e in (inverse, step):
            moved = self.assign(f"shl {ints} {e}, {splat('i32', '23', lanes)}")
            scales.append(self.assign(f"bitcast {ints} {moved} to {floats}"))
        units = self._call("roundeven", lanes, self.assign(f"fmul {floats} {size}, {scales[0]}"))
        near = self.assign(f"fmul {floats} {units}, {scales[1]}")
        largest = splat("float", literal(form.largest, f32), lanes)
        over = self.assign(f"fcmp ogt {floats} {near}, {largest}")
        beyond = form.largest if form.nan is None else float("nan") if form.infinity is None else float("inf")
        beyond_text = splat("float", literal(beyond, f32), lanes)
        near = self.assign(f"select {bits1} {over}, {floats} {beyond_text}, {floats} {near}")
        signed = self._call("copysign", lanes, near, value)
        zero = splat("float", "0.0", lanes)
        if form.nan is None:
            opposite = self.assign(f"fneg {floats} {self._call('copysign', lanes, zero, value)}")
            nan = self.assign(f"fcmp uno {floats} {value}, {value}")
            return self.assign(f"select {bits1} {nan}, {floats} {opposite}, {floats} {signed}")
        if form.unsigned_zero:
            return self.assign(f"fadd {floats} {signed}, {zero}")  # -0 + 0 = 0
        return signed

    def _decode(self, raw: str, form: Form, lanes: int) -> str:
        ints, floats, bits1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
        top = 1 << (form.bits - 1)
        code = self.assign(f"zext {vector('i8', lanes)} {raw} to {ints}")
        size = self.assign(f"and {ints} {code}, {splat('i32', str(top - 1), lanes)}")
        moved = self.assign(f"shl {ints} {size}, {splat('i32', str(23 - form.mantissa), lanes)}")
        normal = self.assign(f"add {ints} {moved}, {splat('i32', str((127 - form.bias) << 23), lanes)}")
        count = self.assign(f"uitofp {ints} {size} to {floats}")
        unit = literal(2.0 ** (1 - form.bias - form.mantissa), f32)
        scaled = self.assign(f"fmul {floats} {count}, {splat('float', unit, lanes)}")
        small = self.assign(f"bitcast {floats} {scaled} to {ints}")
        tiny = self.assign(f"icmp ult {ints} {size}, {splat('i32', str(1 << form.mantissa), lanes)}")
        found = self.assign(f"select {bits1} {tiny}, {ints} {small}, {ints} {normal}")
        nan = ""
        if form.infinity is not None:
            infinite = self.assign(f"icmp eq {ints} {size}, {splat('i32', str(form.infinity), lanes)}")
            found = self.assign(f"select {bits1} {infinite}, {ints} {splat('i32', str(0x7F800000), lanes)}, {ints} {found}")
            nan = self.assign(f"icmp ugt {ints} {size}, {splat('i32', str(form.infinity), lanes)}")
        elif form.unsigned_zero:
            nan = self.assign(f"icmp eq {ints} {code}, {splat('i32', str(top), lanes)}")
        elif form.nan is not None:
            nan = self.assign(f"icmp eq {ints} {size}, {splat('i32', str(form.nan), lanes)}")
        if nan:
            found = self.assign(f"select {bits1} {nan}, {ints} {splat('i32', str(0x7FC00000), lanes)}, {ints} {found}")
        sign = self.assign(f"and {ints} {code}, {splat('i32', str(top), lanes)}")
        high = self.assign(f"shl {ints} {sign}, {splat('i32', str(32 - form.bits), lanes)}")
        return self.assign(f"bitcast {ints} {self.assign(f'or {ints} {found}, {high}')} to {floats}")

    def _encode(self, value: str, form: Form, lanes: int) -> str:
        ints, floats, bits1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
        size = self._call("fabs", lanes, value)
        bits = self.assign(f"bitcast {floats} {size} to {ints}")
        moved = self.assign(f"lshr {ints} {bits}, {splat('i32', str(23 - form.mantissa), lanes)}")
        normal = self.assign(f"sub {ints} {moved}, {splat('i32', str((127 - form.bias) << form.mantissa), lanes)}")
        per_unit = literal(2.0 ** (form.mantissa + form.bias - 1), f32)
        least = literal(2.0 ** (1 - form.bias), f32)
        tiny = self.assign(f"fcmp olt {floats} {size}, {splat('float', least, lanes)}")
        counted = self.assign(f"select {bits1} {tiny}, {floats} {size}, {floats} {splat('float', '0.0', lanes)}")
        units = self.assign(f"fmul {floats} {counted}, {splat('float', per_unit, lanes)}")
        small = self.assign(f"fptoui {floats} {units} to {ints}")
        code = self.assign(f"select {bits1} {tiny}, {ints} {small}, {ints} {normal}")
        if form.infinity is not None:
            infinite = self.assign(f"fcmp oeq {floats} {size}, {splat('float', literal(float('inf'), f32), lanes)}")
            code = self.assign(f"select {bits1} {infinite}, {ints} {splat('i32', str(form.infinity), lanes)}, {ints} {code}")
        own = self.assign(f"bitcast {floats} {value} to {ints}")
        high = self.assign(f"lshr {ints} {own}, {splat('i32', str(32 - form.bits), lanes)}")
        sign = self.assign(f"and {ints} {high}, {splat('i32', str(1 << (form.bits - 1)), lanes)}")
        if form.nan is not None:
            nan = self.assign(f"fcmp uno {floats} {value}, {value}")
            code = self.assign(f"select {bits1} {nan}, {ints} {splat('i32', str(form.nan), lanes)}, {ints} {code}")
        code = self.assign(f"or {ints} {code}, {sign}")
        return self.assign(f"trunc {ints} {code} to {vector('i8', lanes)}")

    # -- f8e8m0: the exponent field of a float, but that code 0 is the subnormal 2**-127 ---------------------------------

    def _round_power(self, value: str, lanes: int) -> str:
        ints, floats, bits1 = vector("i32", lanes), vector("float", lanes), vector("i1", lanes)
        constant = lambda number: splat("i32", str(number), lanes)  # noqa: E731
        bits = self.assign(f"bitcast {floats} {value} to {ints}")
        half = self.assign(f"add {ints} {bits}, {constant(0x00400000)}")
        near = self.assign(f"and {ints} {half}, {constant(0x7F800000)}")
        low = self.assign(f"icmp ult {ints} {bits}, {constant(0x00600000)}")  # below 1.5 * 2**-127
        near = self.assign(f"select {bits1} {low}, {ints} {constant(0x00400000)}, {ints} {near}")
        over = self.assign(f"icmp eq {ints} {near}, {constant(0x7F800000)}")
        positive = self.assign(f"fcmp ogt {floats} {value}, {splat('float', '0.0', lanes)}")
        good = self.assign(f"xor {bits1} {over}, {splat('i1', 'true', lanes)}")
        good = self.assign(f"and {bits1} {good}, {positive}")
        chosen = self.assign(f"select {bits1} {good}, {ints} {near}, {ints} {constant(0x7FC00000)}")
        return self.assign(f"bitcast {ints} {chosen} to {floats}")

    def _decode_power(self, raw: str, lanes: int) -> str:
        ints, bits1 = vector("i32", lanes), vector("i1", lanes)
        code = self.assign(f"zext {vector('i8', lanes)} {raw} to {ints}")
        moved = self.assign(f"shl {ints} {code}, {splat('i32', '23', lanes)}")
        for special, bits in ((0, 0x00400000), (255, 0x7FC00000)):
            here = self.assign(f"icmp eq {ints} {code}, {splat('i32', str(special), lanes)}")
            moved = self.assign(f"select {bits1} {here}, {ints} {splat('i32', str(bits), lanes)}, {ints} {moved}")
        return self.assign(f"bitcast {ints} {moved} to {vector('float', lanes)}")

    def _encode_power(self, value: str, lanes: int) -> str:
        ints = vector("i32", lanes)
        bits = self.assign(f"bitcast {vector('float', lanes)} {value} to {ints}")
        field = self.assign(f"lshr {ints} {bits}, {splat('i32', '23', lanes)}")  # of NaN 0xFF, or 0x1FF with a sign
        return self.assign(f"trunc {ints} {field} to {vector('i8', lanes)}")
