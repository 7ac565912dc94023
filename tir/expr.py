"""Scalar and vector expressions, interned: equal expressions are the same object, so equality is identity.

`==` and `<` are Python's own; comparisons in the IR are named (`eq`, `lt`). Operators (`+ - * // % /`) build nodes and fold
integer constants; `//` and `%` are floor division and its remainder and `/` is for floats only. Integer index arithmetic is
i64. A vector expression has `lanes > 1`; scalars mix with vectors only through `Broadcast`.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from everport.ir.dtype import DType, boolean, i64
from everport.ir.node import Node, post_order, rewrite

if TYPE_CHECKING:
    from everport.tir.buffer import Buffer

ARITHMETIC = ("+", "-", "*", "/", "//", "%", "tdiv", "tmod", "min", "max")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
LOGICAL = ("and", "or")
BITWISE = ("&", "|", "^", "<<", ">>")
BINARY_OPS = ARITHMETIC + COMPARISONS + LOGICAL + BITWISE
UNARY_OPS = ("neg", "not", "~")

_interned: weakref.WeakValueDictionary[tuple, Expr] = weakref.WeakValueDictionary()


class Expr(Node):
    """Base of all expressions. `dtype` is the scalar type, `lanes` the vector width (1: scalar)."""

    __slots__ = ("__weakref__", "dtype", "lanes")
    FIELDS: tuple[str, ...] = ()
    IS_INTERNED = True
    dtype: DType
    lanes: int

    def __bool__(self) -> bool:
        raise TypeError(
            f"the truth of a symbolic expression ({self}) is not known here; "
            "build a condition with eq/lt/..., or ask arith's can_prove(condition)"
        )

    def __add__(self, other: ExprLike) -> Expr:
        return binary("+", self, other)

    def __radd__(self, other: ExprLike) -> Expr:
        return binary("+", other, self)

    def __sub__(self, other: ExprLike) -> Expr:
        return binary("-", self, other)

    def __rsub__(self, other: ExprLike) -> Expr:
        return binary("-", other, self)

    def __mul__(self, other: ExprLike) -> Expr:
        return binary("*", self, other)

    def __rmul__(self, other: ExprLike) -> Expr:
        return binary("*", other, self)

    def __truediv__(self, other: ExprLike) -> Expr:
        return binary("/", self, other)

    def __rtruediv__(self, other: ExprLike) -> Expr:
        return binary("/", other, self)

    def __floordiv__(self, other: ExprLike) -> Expr:
        return binary("//", self, other)

    def __rfloordiv__(self, other: ExprLike) -> Expr:
        return binary("//", other, self)

    def __mod__(self, other: ExprLike) -> Expr:
        return binary("%", self, other)

    def __rmod__(self, other: ExprLike) -> Expr:
        return binary("%", other, self)

    def __neg__(self) -> Expr:
        return unary("neg", self)

    def with_fields(self, **changes: Any) -> Expr:
        values = [changes.get(name, getattr(self, name)) for name in self.FIELDS]
        return type(self)(*values)

    def __str__(self) -> str:
        return format_expr(self)

    def __repr__(self) -> str:
        return format_expr(self)

    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: dict) -> Expr:
        return self

    def __reduce__(self) -> Any:
        return type(self), tuple(getattr(self, name) for name in self.FIELDS)


ExprLike: TypeAlias = "Expr | int | float | bool"


def _intern(cls: type, key: tuple, dtype: DType, lanes: int, **fields: Any) -> Any:
    full = (cls, *key)
    found = _interned.get(full)
    if found is not None:
        return found
    node = object.__new__(cls)
    node.dtype = dtype
    node.lanes = lanes
    for name, value in fields.items():
        setattr(node, name, value)
    _interned[full] = node
    return node


class Var(Expr):
    """A variable: a loop index, a block iterator, a shape symbol, a scalar parameter. Identity is the object, not the name."""

    __slots__ = ("name",)
    FIELDS = ("name", "dtype")
    IS_BINDER = True
    name: str

    def __init__(self, name: str, dtype: DType = i64) -> None:
        self.name = name
        self.dtype = dtype
        self.lanes = 1

    def with_fields(self, **changes: Any) -> Expr:
        if all(getattr(self, n) is v for n, v in changes.items()):
            return self
        return Var(changes.get("name", self.name), changes.get("dtype", self.dtype))

    def __reduce__(self) -> Any:
        # Pickled only inside a whole function (to worker processes): the memo keeps identity there.
        return Var, (self.name, self.dtype)


class Const(Expr):
    """A literal. Integers and bools are Python ints (bool: 0 or 1), floats Python floats; NaN and -0.0 are kept."""

    __slots__ = ("value",)
    FIELDS = ("value", "dtype")
    value: int | float

    def __new__(cls, value: float, dtype: DType = i64) -> Const:
        if dtype.is_float:
            value = float(value)
            key: tuple = (struct.pack("<d", value), dtype)
        else:
            value = int(value)
            key = (value, dtype)
        return _intern(cls, key, dtype, 1, value=value)


class Binary(Expr):
    """`a op b`; op is one of BINARY_OPS. Both sides have one dtype and lanes; comparisons and logic give bool."""

    __slots__ = ("a", "b", "op")
    FIELDS = ("op", "a", "b")
    NODE_FIELDS = ("a", "b")
    op: str
    a: Expr
    b: Expr

    def __new__(cls, op: str, a: Expr, b: Expr) -> Binary:
        if op not in BINARY_OPS:
            raise ValueError(f"unknown binary operator {op!r}")
        if a.dtype is not b.dtype and a.dtype != b.dtype:
            raise TypeError(f"operands of {op!r} differ in type: {a} is {a.dtype}, {b} is {b.dtype}")
        if a.lanes != b.lanes:
            raise TypeError(f"operands of {op!r} differ in lanes: {a} has {a.lanes}, {b} has {b.lanes}")
        dtype = boolean if op in COMPARISONS or op in LOGICAL else a.dtype
        return _intern(cls, (op, a, b), dtype, a.lanes, op=op, a=a, b=b)


class Unary(Expr):
    """`neg a` (arithmetic), `not a` (bool), `~a` (bits)."""

    __slots__ = ("a", "op")
    FIELDS = ("op", "a")
    NODE_FIELDS = ("a",)
    op: str
    a: Expr

    def __new__(cls, op: str, a: Expr) -> Unary:
        if op not in UNARY_OPS:
            raise ValueError(f"unknown unary operator {op!r}")
        return _intern(cls, (op, a), a.dtype, a.lanes, op=op, a=a)


class Select(Expr):
    """`a if cond else b`, lane by lane. Both sides may be evaluated; a load on the side not taken must be in bounds or is
    masked by the code generator: only the chosen side's value counts and only its loads may fault."""

    __slots__ = ("a", "b", "cond")
    FIELDS = ("cond", "a", "b")
    NODE_FIELDS = ("cond", "a", "b")
    cond: Expr
    a: Expr
    b: Expr

    def __new__(cls, cond: Expr, a: Expr, b: Expr) -> Select:
        if a.dtype != b.dtype or a.lanes != b.lanes or cond.lanes not in (1, a.lanes):
            raise TypeError(
                f"select({cond}, {a}: {a.dtype}x{a.lanes}, {b}: {b.dtype}x{b.lanes}) does not agree in type"
            )
        if not cond.dtype.is_bool:
            raise TypeError(f"the condition of select must be bool, {cond} is {cond.dtype}")
        return _intern(cls, (cond, a, b), a.dtype, a.lanes, cond=cond, a=a, b=b)


class Cast(Expr):
    """Conversion by value. Float to int truncates and saturates like a C cast where in range; anything to bool is `!= 0`;
    to a smaller float rounds to nearest even (fp8 fn types saturate only where an operator says so)."""

    __slots__ = ("a",)
    FIELDS = ("a", "dtype")
    NODE_FIELDS = ("a",)
    a: Expr

    def __new__(cls, a: Expr, dtype: DType) -> Cast:
        return _intern(cls, (a, dtype), dtype, a.lanes, a=a)


class Call(Expr):
    """An intrinsic of the table in tir/intrin.py, applied to arguments of equal lanes."""

    __slots__ = ("args", "name")
    FIELDS = ("name", "args", "dtype")
    NODE_FIELDS = ("args",)
    name: str
    args: tuple[Expr, ...]

    def __new__(cls, name: str, args: Sequence[Expr], dtype: DType) -> Call:
        args = tuple(args)
        lanes = max((a.lanes for a in args), default=1)
        return _intern(cls, (name, args, dtype), dtype, lanes, name=name, args=args)


class Load(Expr):
    """`buffer[indices]`. Before lowering one scalar index a dimension; after it one flat index, which may be a vector."""

    __slots__ = ("buffer", "indices")
    FIELDS = ("buffer", "indices")
    NODE_FIELDS = ("buffer", "indices")
    buffer: Buffer
    indices: tuple[Expr, ...]

    def __new__(cls, buffer: Buffer, indices: Sequence[Expr]) -> Load:
        indices = tuple(indices)
        lanes = max((i.lanes for i in indices), default=1)
        return _intern(cls, (buffer, indices), buffer.dtype, lanes, buffer=buffer, indices=indices)


class Ramp(Expr):
    """The vector base, base + stride, ..., of `lanes` lanes."""

    __slots__ = ("base", "stride")
    FIELDS = ("base", "stride", "lanes")
    NODE_FIELDS = ("base", "stride")
    base: Expr
    stride: Expr

    def __new__(cls, base: Expr, stride: Expr, lanes: int) -> Ramp:
        return _intern(cls, (base, stride, lanes), base.dtype, lanes, base=base, stride=stride)


class Broadcast(Expr):
    """A scalar in every one of `lanes` lanes."""

    __slots__ = ("a",)
    FIELDS = ("a", "lanes")
    NODE_FIELDS = ("a",)
    a: Expr

    def __new__(cls, a: Expr, lanes: int) -> Broadcast:
        return _intern(cls, (a, lanes), a.dtype, lanes, a=a)


def const(value: ExprLike, dtype: DType = i64) -> Expr:
    """`value` as an expression: a Const of `dtype`, or the expression itself."""
    return value if isinstance(value, Expr) else Const(value, dtype)


def as_expr(value: ExprLike, like: Expr | None = None) -> Expr:
    """Python numbers become constants of `like`'s type (default i64)."""
    if isinstance(value, Expr):
        return value
    if like is None:
        if isinstance(value, float):
            raise TypeError(f"the float {value} needs a type: use const({value}, f32)")
        return Const(int(value), boolean if isinstance(value, bool) else i64)
    result: Expr = Const(value, like.dtype)
    return result if like.lanes == 1 else Broadcast(result, like.lanes)


def _pair(a: ExprLike, b: ExprLike) -> tuple[Expr, Expr]:
    left = as_expr(a, b if isinstance(b, Expr) else None)
    right = as_expr(b, left)
    return left, right


def fold_int(op: str, x: int, y: int) -> int | None:
    """The exact integer value of `x op y`, or None where it has none (division by zero, negative shift)."""
    match op:
        case "+":
            return x + y
        case "-":
            return x - y
        case "*":
            return x * y
        case "//" | "%" | "tdiv" | "tmod":
            if y == 0:
                return None
            if op == "//":
                return x // y
            if op == "%":
                return x % y
            quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
            return quotient if op == "tdiv" else x - quotient * y
        case "min":
            return min(x, y)
        case "max":
            return max(x, y)
        case "==" | "!=" | "<" | "<=" | ">" | ">=":
            return int({"==": x == y, "!=": x != y, "<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y}[op])
        case "and" | "&":
            return x & y
        case "or" | "|":
            return x | y
        case "^":
            return x ^ y
        case "<<":
            return x << y if 0 <= y < 64 else None
        case ">>":
            return x >> y if 0 <= y < 64 else None
    return None


def binary(op: str, a: ExprLike, b: ExprLike) -> Expr:
    """`a op b` with integer constants folded and neutral elements dropped (never for floats: -0.0 and NaN)."""
    x, y = _pair(a, b)
    if op == "/" and not x.dtype.is_float:
        raise TypeError(f"'/' is for floats, {x} is {x.dtype}; use // or the tdiv operator")
    if op in ("//", "%") and not x.dtype.is_int:
        raise TypeError(f"{op!r} is for integers, {x} is {x.dtype}")
    if op in LOGICAL and not x.dtype.is_bool:
        raise TypeError(f"{op!r} is for bool, {x} is {x.dtype}")
    if isinstance(x, Const) and isinstance(y, Const) and not x.dtype.is_float:
        folded = fold_int(op, int(x.value), int(y.value))
        result_type = boolean if op in COMPARISONS or op in LOGICAL else x.dtype
        if folded is not None and (result_type.is_bool or result_type.min_value <= folded <= result_type.max_value):
            return Const(folded, result_type)
    if x.dtype.is_int and x.lanes == 1 and y.lanes == 1:
        if isinstance(y, Const):
            if (op in ("+", "-") and y.value == 0) or (op in ("*", "//") and y.value == 1):
                return x
            if (op == "*" and y.value == 0) or (op == "%" and y.value == 1):
                return Const(0, x.dtype)
        if isinstance(x, Const):
            if (op == "+" and x.value == 0) or (op == "*" and x.value == 1):
                return y
            if op == "*" and x.value == 0:
                return Const(0, x.dtype)
        if op in ("min", "max") and x is y:
            return x
    if op in LOGICAL and x.lanes == y.lanes == 1:
        for known, other in ((x, y), (y, x)):
            if isinstance(known, Const):
                return other if bool(known.value) == (op == "and") else known
    return Binary(op, x, y)


def unary(op: str, a: Expr) -> Expr:
    """`op a` with integer and bool constants folded."""
    if isinstance(a, Const):
        if op == "neg" and a.dtype.kind == "int":
            return Const(-a.value, a.dtype)
        if op == "neg" and a.dtype.is_float:
            return Const(-a.value, a.dtype)
        if op == "not":
            return Const(1 - int(a.value), boolean)
    if op == "not" and isinstance(a, Unary) and a.op == "not":
        return a.a
    return Unary(op, a)


def eq(a: ExprLike, b: ExprLike) -> Expr:
    return binary("==", a, b)


def ne(a: ExprLike, b: ExprLike) -> Expr:
    return binary("!=", a, b)


def lt(a: ExprLike, b: ExprLike) -> Expr:
    return binary("<", a, b)


def le(a: ExprLike, b: ExprLike) -> Expr:
    return binary("<=", a, b)


def gt(a: ExprLike, b: ExprLike) -> Expr:
    return binary(">", a, b)


def ge(a: ExprLike, b: ExprLike) -> Expr:
    return binary(">=", a, b)


def logical_and(*terms: Expr) -> Expr:
    """The conjunction of all terms; true for none."""
    result: Expr = Const(1, boolean)
    for term in terms:
        result = binary("and", result, term)
    return result


def logical_or(*terms: Expr) -> Expr:
    """The disjunction of all terms; false for none."""
    result: Expr = Const(0, boolean)
    for term in terms:
        result = binary("or", result, term)
    return result


def logical_not(a: Expr) -> Expr:
    return unary("not", a)


def minimum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("min", a, b)


def maximum(a: ExprLike, b: ExprLike) -> Expr:
    return binary("max", a, b)


def ceildiv(a: ExprLike, b: ExprLike) -> Expr:
    """`a` divided by a positive `b`, rounded up."""
    x, y = _pair(a, b)
    return (x + (y - 1)) // y


def select(cond: Expr, a: ExprLike, b: ExprLike) -> Expr:
    """`a if cond else b`; a constant condition is folded."""
    x, y = _pair(a, b)
    if isinstance(cond, Const):
        return x if cond.value else y
    return x if x is y else Select(cond, x, y)


def cast(a: ExprLike, dtype: DType) -> Expr:
    """`a` as `dtype`; constants are folded where exact, a cast to the same type is dropped."""
    x = as_expr(a)
    if x.dtype == dtype:
        return x
    if isinstance(x, Const) and not x.dtype.is_float:
        if dtype.is_bool:
            return Const(int(x.value != 0), dtype)
        if dtype.is_int and dtype.min_value <= x.value <= dtype.max_value:
            return Const(x.value, dtype)
        if dtype.is_float and abs(x.value) <= 2**8:
            return Const(float(x.value), dtype)
    return Cast(x, dtype)


def as_int(a: ExprLike) -> int | None:
    """The value of an integer constant, else None."""
    if isinstance(a, Const) and not a.dtype.is_float:
        return int(a.value)
    return int(a) if isinstance(a, int) else None


def substitute(node: Any, mapping: Mapping[Var, Expr]) -> Any:
    """Replaces variables in an expression or statement; untouched parts keep their identity. Re-folds constants on the way."""
    if not mapping:
        return node
    try:
        if isinstance(node, Expr):
            return _Substitution(mapping).expr(node)
        return rewrite(node, refold, pre=_Substitution(mapping).before)
    except RecursionError:  # an expression too deep to recurse over
        return rewrite(node, lambda n: mapping.get(n) if isinstance(n, Var) else refold(n))


class _Substitution:
    """Replaces variables in expressions and in the shapes of buffers, each part once."""

    __slots__ = ("buffers", "memo")

    def __init__(self, mapping: Mapping[Var, Expr]) -> None:
        self.memo: dict[Expr, Expr] = dict(mapping)
        self.buffers: dict[Any, Any] = {}

    def before(self, node: Node) -> Node | None:
        """For `rewrite`: expressions and buffers are done here, statements by their children."""
        if isinstance(node, Expr):
            return self.expr(node)
        return self.buffer(node) if hasattr(node, "scope") else None

    def buffer(self, buffer: Any) -> Any:
        found = self.buffers.get(buffer)
        if found is None:
            shape = tuple(self.expr(e) for e in buffer.shape)
            same = all(a is b for a, b in zip(shape, buffer.shape, strict=True))
            found = buffer if same else buffer.with_fields(shape=shape)
            self.buffers[buffer] = found
        return found

    def expr(self, e: Expr) -> Expr:
        found = self.memo.get(e)
        if found is None:
            found = self._expr(e)
            self.memo[e] = found
        return found

    def _expr(self, e: Expr) -> Expr:
        kind = type(e)
        if kind is Const or kind is Var:
            return e
        if kind is Binary:
            a, b = self.expr(e.a), self.expr(e.b)  # type: ignore[attr-defined]
            return e if a is e.a and b is e.b else binary(e.op, a, b)  # type: ignore[attr-defined]
        if kind is Load:
            indices = tuple([self.expr(i) for i in e.indices])  # type: ignore[attr-defined]
            buffer = self.buffer(e.buffer)  # type: ignore[attr-defined]
            same = buffer is e.buffer and all(a is b for a, b in zip(indices, e.indices, strict=True))  # type: ignore[attr-defined]
            return e if same else Load(buffer, indices)
        changes = {}
        for name in e.NODE_FIELDS:
            value = getattr(e, name)
            new = tuple([self.expr(v) for v in value]) if isinstance(value, tuple) else self.expr(value)
            if isinstance(value, tuple):
                if any(a is not b for a, b in zip(new, value, strict=True)):
                    changes[name] = new
            elif new is not value:
                changes[name] = new
        return refold(e.with_fields(**changes)) if changes else e  # type: ignore[return-value]


def refold(node: Node) -> Node:
    """Passes a rebuilt expression through its folding constructor."""
    if isinstance(node, Binary):
        return binary(node.op, node.a, node.b)
    if isinstance(node, Select):
        return select(node.cond, node.a, node.b)
    if isinstance(node, Cast):
        return cast(node.a, node.dtype)
    if isinstance(node, Unary):
        return unary(node.op, node.a)
    return node


def free_vars(root: Node | Iterable[Node]) -> list[Var]:
    """Every variable that occurs, in order of first occurrence (loop variables included)."""
    roots = [root] if isinstance(root, Node) else list(root)
    found: dict[Var, None] = {}
    for item in roots:
        for node in post_order(item):
            if isinstance(node, Var):
                found[node] = None
    return list(found)


_PRECEDENCE = {
    "or": 1, "and": 2, "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8,
    "+": 9, "-": 9, "*": 10, "/": 10, "//": 10, "%": 10,
}  # fmt: skip


def format_expr(expr: Expr) -> str:
    """A short text for messages and debugging; the script printer (tir/print.py) is the one that parses back."""
    return _format(expr, 0)


def _format(e: Expr, outer: int) -> str:
    match e:
        case Var():
            return e.name
        case Const():
            if e.dtype.is_bool:
                return str(bool(e.value))
            return str(e.value) if e.dtype is i64 else f"{e.dtype}({e.value})"
        case Binary() if e.op in _PRECEDENCE:
            level = _PRECEDENCE[e.op]
            text = f"{_format(e.a, level)} {e.op} {_format(e.b, level + 1)}"
            return f"({text})" if level < outer or (level == 4 and outer == 4) else text
        case Binary():
            return f"{e.op}({_format(e.a, 0)}, {_format(e.b, 0)})"
        case Unary():
            return f"{e.op}({_format(e.a, 0)})"
        case Select():
            return f"select({_format(e.cond, 0)}, {_format(e.a, 0)}, {_format(e.b, 0)})"
        case Cast():
            return f"{e.dtype}({_format(e.a, 0)})"
        case Call():
            return f"{e.name}({', '.join(_format(a, 0) for a in e.args)})"
        case Load():
            return f"{e.buffer.name}[{', '.join(_format(i, 0) for i in e.indices)}]"
        case Ramp():
            return f"ramp({_format(e.base, 0)}, {_format(e.stride, 0)}, {e.lanes})"
        case Broadcast():
            return f"broadcast({_format(e.a, 0)}, {e.lanes})"
    raise TypeError(f"not an expression: {type(e).__name__}")
