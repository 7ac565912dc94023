"""Math in LLVM text.

f32 exp, log, tanh, sigmoid and erf are vector code written here (errors: exp 1.5 ulp, log 1.5 ulp, tanh 3 ulp, erf 3 ulp,
sigmoid 3 ulp where the result is normal and 0 below); what LLVM inlines (sqrt, rounding, fma, abs, copysign) are its intrinsics; the rest are calls of the C math
library, lane by lane. f16 and bf16 compute in f32. Polynomials for exp, log and tanh: Cephes (Moshier, 1989); those for erf
are Chebyshev fits of erf(sqrt(z))/sqrt(z) on [0, 1] and log(erfc(x)) on [1, 4].
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from everport.codegen.llvm.types import value_type
from everport.ir.dtype import DType
from everport.ir.errors import CompileError

Emit = Callable[[str], str]

_LLVM = {"sqrt": "sqrt", "floor": "floor", "ceil": "ceil", "trunc": "trunc", "round": "roundeven", "round_away": "round"}
LIBM = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log1p": "log1p", "sin": "sin", "cos": "cos",
    "tan": "tan", "asin": "asin", "acos": "acos", "atan": "atan", "sinh": "sinh", "cosh": "cosh", "tanh": "tanh",
    "asinh": "asinh", "acosh": "acosh", "atanh": "atanh", "erf": "erf", "pow": "pow", "fmod": "fmod", "atan2": "atan2",
}  # fmt: skip

INLINE = ("exp", "log", "tanh", "sigmoid", "erf")
SPELLED = (*_LLVM, *LIBM, "sigmoid", "rsqrt", "abs", "copysign", "fma", "isnan", "isinf", "popcount")

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_LOG = (
    7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1, -1.6668057665e-1,
    2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1,
)  # fmt: skip
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_ERF_SMALL = (
    -9.67359003e-06, 1.12682536e-4, -8.48439651e-4, 5.22105341e-3, -2.68654383e-2, 1.12837826e-1, -3.76126385e-1, 1.12837917,
)  # fmt: skip
_ERF_LARGE = (
    -6.58286149e-08, 3.09520547e-06, -6.0068804e-05, 6.73337596e-4, -5.02104492e-3, 2.69994975e-2, -1.10907418e-1,
    -6.31088867e-1, -1.13060447, 4.00500573e-4,
)  # fmt: skip


def f32_literal(value: float) -> str:
    rounded = struct.unpack("<f", struct.pack("<f", value))[0]
    return f"0x{struct.unpack('<Q', struct.pack('<d', rounded))[0]:016X}"


class MathLibrary:
    """Collects the helper functions and declarations that one module needs."""

    def __init__(self) -> None:
        self.declarations: dict[str, None] = {}
        self.functions: dict[str, str] = {}

    def declare(self, text: str) -> None:
        self.declarations[text] = None

    def texts(self) -> list[str]:
        return [*self.declarations, *self.functions.values()]

    def call(self, name: str, args: list[str], t: DType, lanes: int, emit: Emit) -> str:
        """An intrinsic on values of type `t`; `emit` writes an instruction and gives its name."""
        scalar = value_type(t)
        kind = scalar if lanes == 1 else f"<{lanes} x {scalar}>"
        if t.is_int:
            return self._integer(name, args, kind, lanes, t, emit)
        if scalar == "half" and name not in ("isnan", "isinf", "abs", "copysign"):
            wide = "float" if lanes == 1 else f"<{lanes} x float>"
            raised = [emit(f"fpext {kind} {a} to {wide}") for a in args]
            value = self._float(name, raised, "float", wide, lanes, emit)
            return emit(f"fptrunc {wide} {value} to {kind}")
        return self._float(name, args, scalar, kind, lanes, emit)

    def _integer(self, name: str, args: list[str], kind: str, lanes: int, t: DType, emit: Emit) -> str:
        suffix = (f"v{lanes}" if lanes > 1 else "") + f"i{max(8, t.bits)}"
        if name == "abs":
            if t.kind == "uint":
                return args[0]
            self.declare(f"declare {kind} @llvm.abs.{suffix}({kind}, i1)")
            return emit(f"call {kind} @llvm.abs.{suffix}({kind} {args[0]}, i1 false)")
        self.declare(f"declare {kind} @llvm.ctpop.{suffix}({kind})")
        return emit(f"call {kind} @llvm.ctpop.{suffix}({kind} {args[0]})")

    def _float(self, name: str, args: list[str], scalar: str, kind: str, lanes: int, emit: Emit) -> str:
        suffix = (f"v{lanes}" if lanes > 1 else "") + {"half": "f16", "float": "f32", "double": "f64"}[scalar]
        typed = ", ".join(f"{kind} {a}" for a in args)
        if name == "isnan":
            return emit(f"fcmp uno {kind} {args[0]}, {args[0]}")
        if name in ("abs", "isinf"):
            self.declare(f"declare {kind} @llvm.fabs.{suffix}({kind})")
            size = emit(f"call {kind} @llvm.fabs.{suffix}({typed})")
            if name == "abs":
                return size
            infinity = {"half": "0xH7C00", "float": "0x7FF0000000000000", "double": "0x7FF0000000000000"}[scalar]
            return emit(f"fcmp oeq {kind} {size}, {infinity if lanes == 1 else f'splat ({scalar} {infinity})'}")
        if name in ("copysign", "fma"):
            self.declare(f"declare {kind} @llvm.{name}.{suffix}({', '.join([kind] * len(args))})")
            return emit(f"call {kind} @llvm.{name}.{suffix}({typed})")
        if name in _LLVM:
            self.declare(f"declare {kind} @llvm.{_LLVM[name]}.{suffix}({kind})")
            return emit(f"call {kind} @llvm.{_LLVM[name]}.{suffix}({typed})")
        one = {"float": "1.0", "double": "1.0"}[scalar]
        ones = one if lanes == 1 else f"splat ({scalar} {one})"
        if name == "rsqrt":
            return emit(f"fdiv {kind} {ones}, {self._float('sqrt', args, scalar, kind, lanes, emit)}")
        if name in INLINE and scalar == "float":
            symbol = f"ep.{name}.{suffix}"
            if symbol not in self.functions:
                self.functions[symbol] = ""  # keeps order: what it needs is written before its first user
                self.functions[symbol] = _Writer(self, symbol, lanes).write(name)
            return emit(f"call {kind} @{symbol}({typed})")
        if name == "sigmoid":
            negated = emit(f"fneg {kind} {args[0]}")
            below = emit(f"fadd {kind} {ones}, {self._float('exp', [negated], scalar, kind, lanes, emit)}")
            return emit(f"fdiv {kind} {ones}, {below}")
        return self._libm(name, args, scalar, kind, lanes, emit)

    def _libm(self, name: str, args: list[str], scalar: str, kind: str, lanes: int, emit: Emit) -> str:
        if name not in LIBM:
            raise CompileError(f"the LLVM code generator has no spelling for the intrinsic {name!r}")
        symbol = LIBM[name] + ("f" if scalar == "float" else "")
        self.declare(f"declare {scalar} @{symbol}({', '.join([scalar] * len(args))})")
        if lanes == 1:
            return emit(f"call {scalar} @{symbol}({', '.join(f'{scalar} {a}' for a in args)})")
        result = "poison"
        for lane in range(lanes):
            parts = [emit(f"extractelement {kind} {a}, i64 {lane}") for a in args]
            value = emit(f"call {scalar} @{symbol}({', '.join(f'{scalar} {p}' for p in parts)})")
            result = emit(f"insertelement {kind} {result}, {scalar} {value}, i64 {lane}")
        return result


class _Writer:
    """Writes one f32 helper for a number of lanes."""

    def __init__(self, library: MathLibrary, symbol: str, lanes: int) -> None:
        self.library = library
        self.symbol = symbol
        self.lanes = lanes
        self.lines: list[str] = []
        self.f = "float" if lanes == 1 else f"<{lanes} x float>"
        self.i = "i32" if lanes == 1 else f"<{lanes} x i32>"
        self.b = "i1" if lanes == 1 else f"<{lanes} x i1>"
        self.suffix = ("" if lanes == 1 else f"v{lanes}") + "f32"

    def write(self, name: str) -> str:
        result = getattr(self, name)("%x")
        body = "\n".join(self.lines)
        return f"define internal {self.f} @{self.symbol}({self.f} %x) nounwind alwaysinline {{\n{body}\n  ret {self.f} {result}\n}}"

    def emit(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def c(self, value: float) -> str:
        text = f32_literal(value)
        return text if self.lanes == 1 else f"splat (float {text})"

    def k(self, value: int) -> str:
        return str(value) if self.lanes == 1 else f"splat (i32 {value})"

    def op(self, name: str, a: str, b: str) -> str:
        return self.emit(f"{name} {self.f} {a}, {b}")

    def iop(self, name: str, a: str, b: str) -> str:
        return self.emit(f"{name} {self.i} {a}, {b}")

    def fma(self, a: str, b: str, c: str) -> str:
        """a * b + c, fused where the processor can."""
        self.library.declare(f"declare {self.f} @llvm.fmuladd.{self.suffix}({self.f}, {self.f}, {self.f})")
        return self.emit(f"call {self.f} @llvm.fmuladd.{self.suffix}({self.f} {a}, {self.f} {b}, {self.f} {c})")

    def unary(self, name: str, a: str) -> str:
        self.library.declare(f"declare {self.f} @llvm.{name}.{self.suffix}({self.f})")
        return self.emit(f"call {self.f} @llvm.{name}.{self.suffix}({self.f} {a})")

    def copysign(self, a: str, b: str) -> str:
        self.library.declare(f"declare {self.f} @llvm.copysign.{self.suffix}({self.f}, {self.f})")
        return self.emit(f"call {self.f} @llvm.copysign.{self.suffix}({self.f} {a}, {self.f} {b})")

    def cmp(self, how: str, a: str, b: str) -> str:
        return self.emit(f"fcmp {how} {self.f} {a}, {b}")

    def pick(self, cond: str, a: str, b: str) -> str:
        return self.emit(f"select {self.b} {cond}, {self.f} {a}, {self.f} {b}")

    def bits(self, a: str) -> str:
        return self.emit(f"bitcast {self.f} {a} to {self.i}")

    def float_of_bits(self, a: str) -> str:
        return self.emit(f"bitcast {self.i} {a} to {self.f}")

    def polynomial(self, x: str, coefficients: tuple[float, ...]) -> str:
        """Horner's rule, the highest power first."""
        result = self.c(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fma(result, x, self.c(coefficient))
        return result

    def exp(self, x: str) -> str:
        low = self.pick(self.cmp("olt", x, self.c(-104.0)), self.c(-104.0), x)
        inside = self.pick(self.cmp("ogt", low, self.c(89.0)), self.c(89.0), low)
        n = self.unary("roundeven", self.op("fmul", inside, self.c(1.4426950408889634)))
        r = self.fma(n, self.c(-0.693359375), inside)
        r = self.fma(n, self.c(2.12194440e-4), r)
        y = self.polynomial(r, _EXP)
        y = self.fma(y, self.op("fmul", r, r), r)
        y = self.op("fadd", y, self.c(1.0))
        number = self.pick(self.cmp("uno", x, x), self.c(0.0), n)
        whole = self.emit(f"fptosi {self.f} {number} to {self.i}")
        half = self.iop("ashr", whole, self.k(1))
        rest = self.iop("sub", whole, half)
        for part in (half, rest):
            scale = self.float_of_bits(self.iop("shl", self.iop("add", part, self.k(127)), self.k(23)))
            y = self.op("fmul", y, scale)
        return self.pick(self.cmp("uno", x, x), x, y)

    def log(self, x: str) -> str:
        tiny = self.cmp("olt", x, self.c(1.17549435e-38))
        scaled = self.pick(tiny, self.op("fmul", x, self.c(8388608.0)), x)
        bits = self.bits(scaled)
        exponent = self.iop("sub", self.iop("lshr", bits, self.k(23)), self.k(126))
        e = self.emit(f"sitofp {self.i} {exponent} to {self.f}")
        e = self.op("fsub", e, self.pick(tiny, self.c(23.0), self.c(0.0)))
        m = self.float_of_bits(self.iop("or", self.iop("and", bits, self.k(0x7FFFFF)), self.k(0x3F000000)))
        below = self.cmp("olt", m, self.c(0.707106781186547524))
        e = self.op("fsub", e, self.pick(below, self.c(1.0), self.c(0.0)))
        m = self.op("fsub", self.pick(below, self.op("fadd", m, m), m), self.c(1.0))
        z = self.op("fmul", m, m)
        y = self.op("fmul", self.op("fmul", self.polynomial(m, _LOG), m), z)
        y = self.fma(e, self.c(-2.12194440e-4), y)
        y = self.fma(z, self.c(-0.5), y)
        result = self.fma(e, self.c(0.693359375), self.op("fadd", m, y))
        result = self.pick(self.cmp("oeq", x, self.c(float("inf"))), x, result)
        result = self.pick(self.cmp("oeq", x, self.c(0.0)), self.c(float("-inf")), result)
        return self.pick(self.cmp("ult", x, self.c(0.0)), self.c(float("nan")), result)

    def tanh(self, x: str) -> str:
        size = self.unary("fabs", x)
        z = self.op("fmul", x, x)
        small = self.fma(self.op("fmul", self.polynomial(z, _TANH), z), x, x)
        grown = self.exp(self.op("fadd", size, size))
        large = self.op("fdiv", self.c(2.0), self.op("fadd", grown, self.c(1.0)))
        large = self.op("fsub", self.c(1.0), large)
        result = self.copysign(self.pick(self.cmp("olt", size, self.c(0.625)), small, large), x)
        return self.pick(self.cmp("uno", x, x), x, result)

    def sigmoid(self, x: str) -> str:
        negated = self.emit(f"fneg {self.f} {x}")
        return self.op("fdiv", self.c(1.0), self.op("fadd", self.c(1.0), self.exp(negated)))

    def erf(self, x: str) -> str:
        size = self.unary("fabs", x)
        near = self.pick(self.cmp("olt", size, self.c(4.0)), size, self.c(4.0))
        small = self.op("fmul", self.polynomial(self.op("fmul", x, x), _ERF_SMALL), x)
        tail = self.exp(self.polynomial(near, _ERF_LARGE))
        large = self.copysign(self.op("fsub", self.c(1.0), tail), x)
        result = self.pick(self.cmp("olt", size, self.c(1.0)), small, large)
        return self.pick(self.cmp("uno", x, x), x, result)
