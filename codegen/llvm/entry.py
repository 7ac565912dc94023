"""The host program as native code: everport_run and its companions (runtime/include/everport.h), as LLVM text."""

from __future__ import annotations

from everport.runtime.program import DTYPES, ITEMSIZE, Check, Copy, Dim, IntExpr, Launch, Let, Program

ABI_VERSION = 1
EXPORTS = ("everport_abi_version", "everport_run", "everport_pool_create", "everport_pool_destroy")

_CALL_FIELDS = {"weights": 0, "arena": 8, "arena_bytes": 16, "allocate": 24, "user": 32, "pool": 40, "profile": 48}
_TENSOR_BYTES = 24  # data 0, shape 8, rank 16, dtype 20
_COMPARE = {"==": "eq", "!=": "ne", "<": "slt", "<=": "sle", ">": "sgt", ">=": "sge"}


def entry_text(program: Program, symbols: list[str]) -> str:
    """everport_run for a program whose kernel k is the symbol `symbols[k]`."""
    return _Entry(program, symbols).text()


class _Entry:
    def __init__(self, program: Program, symbols: list[str]) -> None:
        self.program = program
        self.symbols = symbols
        self.lines: list[str] = []
        self.count = 0
        self.registers: dict[str, str] = {}
        self.checks = 0
        self.launches = 0

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def assign(self, text: str) -> str:
        self.count += 1
        self.line(f"%t{self.count} = {text}")
        return f"%t{self.count}"

    def label(self, what: str) -> str:
        self.count += 1
        return f"{what}{self.count}"

    def place(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def field(self, base: str, offset: int) -> str:
        return self.assign(f"getelementptr i8, ptr {base}, i64 {offset}")

    def read(self, base: str, offset: int, kind: str) -> str:
        return self.assign(f"load {kind}, ptr {self.field(base, offset)}")

    def fail_unless(self, cond: str, code: int, argument: str, axis: int, check: int, expected: str, actual: str) -> None:
        good, bad = self.label("ok"), self.label("bad")
        self.line(f"br i1 {cond}, label %{good}, label %{bad}")
        self.place(bad)
        for offset, kind, value in (
            (0, "i32", str(code)),
            (4, "i32", argument),
            (8, "i32", str(axis)),
            (12, "i32", str(check)),
            (16, "i64", expected),
            (24, "i64", actual),
        ):
            self.line(f"store {kind} {value}, ptr {self.field('%error', offset)}")
        self.line(f"ret i32 {code}")
        self.place(good)

    def expr(self, e: IntExpr) -> str:
        if isinstance(e, int):
            return str(e)
        if isinstance(e, str):
            return self.registers[e]
        op = e[0]
        if op == "select":
            test = self.assign(f"icmp ne i64 {self.expr(e[1])}, 0")
            return self.assign(f"select i1 {test}, i64 {self.expr(e[2])}, i64 {self.expr(e[3])}")
        if op == "not":
            return self.flag(self.assign(f"icmp eq i64 {self.expr(e[1])}, 0"))
        a, b = self.expr(e[1]), self.expr(e[2])
        if op in _COMPARE:
            return self.flag(self.assign(f"icmp {_COMPARE[op]} i64 {a}, {b}"))
        if op in ("and", "or"):
            x, y = self.assign(f"icmp ne i64 {a}, 0"), self.assign(f"icmp ne i64 {b}, 0")
            return self.flag(self.assign(f"{op} i1 {x}, {y}"))
        if op in ("min", "max"):
            test = self.assign(f"icmp {'slt' if op == 'min' else 'sgt'} i64 {a}, {b}")
            return self.assign(f"select i1 {test}, i64 {a}, i64 {b}")
        if op in ("//", "%"):
            return self.floor(op, a, b)
        return self.assign(f"{ {'+': 'add', '-': 'sub', '*': 'mul'}[op] } i64 {a}, {b}")

    def flag(self, bit: str) -> str:
        return self.assign(f"zext i1 {bit} to i64")

    def floor(self, op: str, a: str, b: str) -> str:
        """Floor division or remainder; a divisor of 0 gives 0."""
        zero = self.assign(f"icmp eq i64 {b}, 0")
        safe = self.assign(f"select i1 {zero}, i64 1, i64 {b}")
        quotient, rest = self.assign(f"sdiv i64 {a}, {safe}"), self.assign(f"srem i64 {a}, {safe}")
        left = self.assign(f"icmp ne i64 {rest}, 0")
        mixed = self.assign(f"icmp slt i64 {self.assign(f'xor i64 {rest}, {safe}')}, 0")
        adjust = self.assign(f"and i1 {left}, {mixed}")
        moved = self.assign(f"add i64 {rest}, {safe}") if op == "%" else self.assign(f"sub i64 {quotient}, 1")
        value = self.assign(f"select i1 {adjust}, i64 {moved}, i64 {rest if op == '%' else quotient}")
        return self.assign(f"select i1 {zero}, i64 0, i64 {value}")

    def text(self) -> str:
        program = self.program
        for k, spec in enumerate(program.inputs):
            base = self.field("%inputs", k * _TENSOR_BYTES)
            rank = self.assign(f"sext i32 {self.read(base, 16, 'i32')} to i64")
            good = self.assign(f"icmp eq i64 {rank}, {len(spec.shape)}")
            self.fail_unless(good, 1, str(k), 0, 0, str(len(spec.shape)), rank)
            code = self.assign(f"sext i32 {self.read(base, 20, 'i32')} to i64")
            good = self.assign(f"icmp eq i64 {code}, {DTYPES.index(spec.dtype)}")
            self.fail_unless(good, 2, str(k), 0, 0, str(DTYPES.index(spec.dtype)), code)
        body = [i for i in program.instructions if isinstance(i, (Launch, Copy))]
        for i in program.instructions:
            if isinstance(i, Dim):
                shape = self.read("%inputs", i.input * _TENSOR_BYTES + 8, "ptr")
                self.registers[i.register] = self.read(shape, 8 * i.axis, "i64")
            elif isinstance(i, Let):
                self.registers[i.register] = self.expr(i.value)
            elif isinstance(i, Check):
                cond = self.assign(f"icmp ne i64 {self.expr(i.cond)}, 0")
                expected, actual = self.expr(i.expected), self.expr(i.actual)
                self.fail_unless(cond, 3, str(i.argument), i.axis, self.checks, expected, actual)
                self.checks += 1
        for k, spec in enumerate(program.outputs):
            self.output(k, spec.dtype, spec.shape)
        self.arena()
        slots = [self.slot(k) for k in range(len(program.buffers))]
        pool = self.read("%call", _CALL_FIELDS["pool"], "ptr")
        profile = self.read("%call", _CALL_FIELDS["profile"], "ptr")
        most_buffers = max([len(i.buffers) for i in body if isinstance(i, Launch)] + [1])
        most_ints = max([len(i.ints) for i in body if isinstance(i, Launch)] + [1])
        for i in body:
            if isinstance(i, Copy):
                size = self.expr(i.bytes)
                self.line(f"call void @llvm.memcpy.p0.p0.i64(ptr {slots[i.target]}, ptr {slots[i.source]}, i64 {size}, i1 false)")
                continue
            for k, b in enumerate(i.buffers):
                self.line(f"store ptr {slots[b]}, ptr {self.field('%buffers', 8 * k)}")
            for k, e in enumerate(i.ints):
                self.line(f"store i64 {self.expr(e)}, ptr {self.field('%ints', 8 * k)}")
            self.launch(i, pool, profile)
        self.line("ret i32 0")
        names = sorted({self.symbols[i.kernel] for i in body if isinstance(i, Launch)})
        declares = [f"declare void @{n}(ptr, ptr, ptr)" for n in names]
        declares += ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)", "declare i32 @clock_gettime(i32, ptr)"]
        head = "define i32 @everport_run(ptr %call, ptr %inputs, ptr %outputs, ptr %error) nounwind {\nentry:"
        allocas = [f"  %buffers = alloca [{most_buffers} x ptr]", f"  %ints = alloca [{most_ints} x i64]"]
        run = "\n".join([head, *allocas, *self.lines, "}"])
        version = f"define i32 @everport_abi_version() nounwind {{\n  ret i32 {ABI_VERSION}\n}}"
        return "\n".join([*declares, _CLOCK, version, run]) + "\n"

    def output(self, k: int, dtype: str, shape: tuple[IntExpr, ...]) -> None:
        """Checks or asks for the memory of an output, and fills in its shape."""
        base = self.field("%outputs", k * _TENSOR_BYTES)
        dims = self.read(base, 8, "ptr")
        values = [self.expr(d) for d in shape]
        size = str(ITEMSIZE.get(dtype, 1))
        for v in values:
            size = self.assign(f"mul i64 {size}, {v}")
        data = self.assign(f"load ptr, ptr {base}")
        missing = self.assign(f"icmp eq ptr {data}, null")
        ask, have, done = self.label("ask"), self.label("have"), self.label("done")
        self.line(f"br i1 {missing}, label %{ask}, label %{have}")
        self.place(have)
        rank = self.assign(f"sext i32 {self.read(base, 16, 'i32')} to i64")
        self.fail_unless(self.assign(f"icmp eq i64 {rank}, {len(shape)}"), 4, str(k), -1, 0, str(len(shape)), rank)
        for axis, v in enumerate(values):
            given = self.read(dims, 8 * axis, "i64")
            self.fail_unless(self.assign(f"icmp eq i64 {given}, {v}"), 4, str(k), axis, 0, v, given)
        self.line(f"br label %{done}")
        self.place(ask)
        for axis, v in enumerate(values):
            self.line(f"store i64 {v}, ptr {self.field(dims, 8 * axis)}")
        memory = self.allocate(str(k), dims, len(shape), size)
        self.line(f"store ptr {memory}, ptr {base}")
        self.line(f"br label %{done}")
        self.place(done)

    def allocate(self, output: str, dims: str, rank: int, size: str) -> str:
        function = self.read("%call", _CALL_FIELDS["allocate"], "ptr")
        user = self.read("%call", _CALL_FIELDS["user"], "ptr")
        memory = self.assign(f"call ptr {function}(ptr {user}, i32 {output}, ptr {dims}, i32 {rank}, i64 {size})")
        self.fail_unless(self.assign(f"icmp ne ptr {memory}, null"), 5, output, 0, 0, size, "0")
        return memory

    def arena(self) -> None:
        size = self.expr(self.program.arena)
        have = self.read("%call", _CALL_FIELDS["arena_bytes"], "i64")
        short = self.assign(f"icmp slt i64 {have}, {size}")
        grow, done = self.label("grow"), self.label("done")
        self.line(f"br i1 {short}, label %{grow}, label %{done}")
        self.place(grow)
        memory = self.allocate("-1", "null", 0, size)
        self.line(f"store ptr {memory}, ptr {self.field('%call', _CALL_FIELDS['arena'])}")
        self.line(f"store i64 {size}, ptr {self.field('%call', _CALL_FIELDS['arena_bytes'])}")
        self.line(f"br label %{done}")
        self.place(done)
        self.arena_base = self.read("%call", _CALL_FIELDS["arena"], "ptr")
        self.weight_base = self.read("%call", _CALL_FIELDS["weights"], "ptr")

    def slot(self, k: int) -> str:
        b = self.program.buffers[k]
        if b.kind == "input":
            return self.read("%inputs", b.index * _TENSOR_BYTES, "ptr")
        if b.kind == "output":
            return self.read("%outputs", b.index * _TENSOR_BYTES, "ptr")
        if b.kind == "weight":
            return self.field(self.weight_base, self.program.weights[b.index].offset)
        return self.assign(f"getelementptr i8, ptr {self.arena_base}, i64 {self.expr(b.offset)}")

    def launch(self, i: Launch, pool: str, profile: str) -> None:
        number = self.launches
        self.launches += 1
        self.line(f"call void @everport_profiled(ptr @{self.symbols[i.kernel]}, ptr {pool}, ptr %buffers, ptr %ints, ptr {profile}, i64 {number})")


_CLOCK = """
define internal i64 @everport_now() nounwind noinline {
  %time = alloca [2 x i64]
  %code = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time
  %part = getelementptr i64, ptr %time, i64 1
  %nanos = load i64, ptr %part
  %scaled = mul i64 %seconds, 1000000000
  %now = add i64 %scaled, %nanos
  ret i64 %now
}

define internal void @everport_profiled(ptr %kernel, ptr %pool, ptr %buffers, ptr %ints, ptr %profile, i64 %number) nounwind noinline {
  %off = icmp eq ptr %profile, null
  br i1 %off, label %plain, label %timed
plain:
  call void %kernel(ptr %pool, ptr %buffers, ptr %ints)
  ret void
timed:
  %begin = call i64 @everport_now()
  call void %kernel(ptr %pool, ptr %buffers, ptr %ints)
  %end = call i64 @everport_now()
  %took = sub i64 %end, %begin
  %where = getelementptr i64, ptr %profile, i64 %number
  %before = load i64, ptr %where
  %after = add i64 %before, %took
  store i64 %after, ptr %where
  ret void
}
"""
