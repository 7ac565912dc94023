"""Model: a loaded package, called with arrays.

One inference is one native call. Inputs are numpy arrays or anything with __dlpack__; outputs are new numpy arrays or those
that the caller gives. A model may be called from several threads: each call takes a state of its own, and the thread pool
serves one call at a time (others run on their own thread meanwhile).
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from . import program as programs
from .errors import RunError
from .package import Package

_NUMPY = {
    "bool": "bool", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32",
    "u32": "uint32", "i64": "int64", "u64": "uint64", "f16": "float16", "f32": "float32", "f64": "float64",
}  # fmt: skip
_EXTENDED = {
    "bf16": ("bfloat16", "uint16"), "f8e4m3fn": ("float8_e4m3fn", "uint8"), "f8e5m2": ("float8_e5m2", "uint8"),
    "f8e4m3fnuz": ("float8_e4m3fnuz", "uint8"), "f8e5m2fnuz": ("float8_e5m2fnuz", "uint8"), "f8e8m0": ("float8_e8m0fnu", "uint8"),
    "f6e2m3": ("float6_e2m3fn", "uint8"), "f6e3m2": ("float6_e3m2fn", "uint8"), "f4e2m1": ("float4_e2m1fn", "uint8"),
    "i4": ("int4", "int8"), "u4": ("uint4", "uint8"), "i2": ("int2", "int8"), "u2": ("uint2", "uint8"),
}  # fmt: skip


class _Call(ctypes.Structure):
    _fields_ = (
        ("weights", ctypes.c_void_p),
        ("arena", ctypes.c_void_p),
        ("arena_bytes", ctypes.c_int64),
        ("allocate", ctypes.c_void_p),
        ("user", ctypes.c_void_p),
        ("pool", ctypes.c_void_p),
        ("profile", ctypes.c_void_p),
    )


class _Tensor(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("shape", ctypes.c_void_p), ("rank", ctypes.c_int32), ("dtype", ctypes.c_int32))


class _Error(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_int32),
        ("argument", ctypes.c_int32),
        ("axis", ctypes.c_int32),
        ("check", ctypes.c_int32),
        ("expected", ctypes.c_int64),
        ("actual", ctypes.c_int64),
    )


_ALLOCATE = ctypes.CFUNCTYPE(
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.POINTER(ctypes.c_int64), ctypes.c_int32, ctypes.c_int64
)


class TensorInfo:
    """An input or output: `name`, `dtype` (Everport's name), `shape` (ints, or the formula of a dimension as text)."""

    __slots__ = ("dtype", "name", "numpy_dtype", "shape")

    def __init__(self, spec: programs.TensorSpec) -> None:
        self.name = spec.name
        self.dtype = spec.dtype
        self.shape = tuple(d if isinstance(d, int) else programs.text_of(d) for d in spec.shape)
        self.numpy_dtype = numpy_dtype(spec.dtype)

    def __repr__(self) -> str:
        return f"{self.name}: {self.dtype}[{', '.join(map(str, self.shape))}]"


def numpy_dtype(name: str) -> np.dtype:
    """The numpy type of an Everport type. bf16 and types of 8 bits or less that numpy lacks are those of ml_dtypes where that
    package is there (and knows them), else integers that hold the raw bits."""
    if name in _EXTENDED:
        extended, raw = _EXTENDED[name]
        try:
            import ml_dtypes
        except ImportError:
            return np.dtype(raw)
        return np.dtype(getattr(ml_dtypes, extended, raw))
    return np.dtype(_NUMPY[name])


def default_threads() -> int:
    """EVERPORT_NUM_THREADS, else the cores that this process may use (affinity and cgroup quota)."""
    chosen = os.environ.get("EVERPORT_NUM_THREADS", "")
    if chosen:
        if not chosen.isdigit() or int(chosen) < 1:
            raise RunError(f"EVERPORT_NUM_THREADS must be a positive integer, not {chosen!r}", "input")
        return int(chosen)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for path in ("/sys/fs/cgroup/cpu.max", "/sys/fs/cgroup/cpu/cpu.cfs_quota_us"):
        try:
            with open(path) as file:
                words = file.read().split()
        except OSError:
            continue
        if len(words) == 2 and words[0] != "max":
            cores = min(cores, max(1, round(int(words[0]) / int(words[1]))))
    return cores


class _State:
    """What one call at a time uses: native structures, the arena, and the outputs made by the callback."""

    def __init__(self, model: Model) -> None:
        inputs, outputs = model.program.inputs, model.program.outputs
        self.call = _Call()
        self.inputs = (_Tensor * max(1, len(inputs)))()
        self.outputs = (_Tensor * max(1, len(outputs)))()
        self.error = _Error()
        self.arena: Any = None
        self.failure: BaseException | None = None
        self.made: list[Any] = [None] * len(outputs)
        self.shapes = []
        for tensors, specs in ((self.inputs, inputs), (self.outputs, outputs)):
            for tensor, spec in zip(tensors, specs):  # noqa: B905 (one spare element)
                shape = (ctypes.c_int64 * max(1, len(spec.shape)))()
                self.shapes.append(shape)
                tensor.shape = ctypes.addressof(shape)
                tensor.rank = len(spec.shape)
                tensor.dtype = programs.DTYPES.index(spec.dtype)
        self.types = [info.numpy_dtype for info in model.outputs]
        self.callback = _ALLOCATE(self._allocate)
        self.call.weights = model.weights_pointer
        self.call.allocate = ctypes.cast(self.callback, ctypes.c_void_p).value
        self.pointers = tuple(ctypes.addressof(x) for x in (self.call, self.inputs, self.outputs, self.error))

    def _allocate(self, user: Any, output: int, shape: Any, rank: int, size: int) -> int:
        try:
            if output < 0:
                self.arena = None
                memory = np.empty(size + 64, np.uint8)
                self.arena = memory
                return memory.ctypes.data + (-memory.ctypes.data % 64)
            array = np.empty([shape[k] for k in range(rank)], self.types[output])
            self.made[output] = array
            return array.ctypes.data or 64
        except (MemoryError, ValueError) as error:
            self.failure = error
            return 0


class Model:
    """A package ready to run. Use `load`."""

    def __init__(self, path: str | os.PathLike, threads: int | None = None, verify: bool = False) -> None:
        package = Package(path)
        if verify:
            package.verify()
        package.check_cpu()
        self.package = package
        self.path = package.path
        self.program = package.program
        self.manifest = package.manifest
        self.inputs = tuple(TensorInfo(s) for s in self.program.inputs)
        self.outputs = tuple(TensorInfo(s) for s in self.program.outputs)
        if threads is not None and (not isinstance(threads, int) or threads < 1):
            raise RunError(f"threads must be a positive integer, not {threads!r}", "input")
        self.threads = default_threads() if threads is None else threads
        self._weights = np.frombuffer(package.archive.view("weights.safetensors"), np.uint8)
        self.weights_pointer = self._weights.ctypes.data + package.weights_start
        self._library = open_library(package.archive.view("cpu/model.so"), repr(str(self.path)))
        try:
            self._run = self._library.everport_run
        except AttributeError as error:
            raise RunError(f"{str(self.path)!r}: the native code is no compiled model: {error}") from None
        self._run.argtypes = [ctypes.c_void_p] * 4
        self._run.restype = ctypes.c_int32
        if self._library.everport_abi_version() != 1:
            raise RunError(f"{str(self.path)!r}: the native code has an unknown interface version", "version")
        self._library.everport_pool_create.restype = ctypes.c_void_p
        self._library.everport_pool_create.argtypes = [ctypes.c_int32]
        self._library.everport_pool_destroy.argtypes = [ctypes.c_void_p]
        self._library.everport_pool_destroy.restype = None
        self._pool: int | None = None
        self._pool_process = 0
        self._lock = threading.Lock()
        self._states: list[_State] = []  # idle
        self._all: list[_State] = []
        self._closed = False
        self._index = {s.name: k for k, s in enumerate(self.program.inputs)}

    # -- calling -------------------------------------------------------------------------------------------------------

    def __call__(self, *arrays: Any) -> Any:
        """Inputs in order; the output array, or a tuple of them."""
        if len(arrays) != len(self.inputs):
            names = ", ".join(i.name for i in self.inputs)
            raise RunError(f"the model takes {len(self.inputs)} inputs ({names}), got {len(arrays)}", "input")
        made = self._execute(arrays, None, None)
        return made[0] if len(made) == 1 else tuple(made)

    def run(self, inputs: Mapping[str, Any], outputs: Mapping[str, np.ndarray] | None = None) -> dict[str, np.ndarray]:
        """Outputs by name. `outputs` may hold arrays (C-contiguous, of the right type and shape) to write into."""
        arrays: list[Any] = [None] * len(self.inputs)
        for name, value in inputs.items():
            if name not in self._index:
                raise self._unknown(name, [i.name for i in self.inputs], "input")
            arrays[self._index[name]] = value
        missing = [i.name for i, a in zip(self.inputs, arrays, strict=True) if a is None]
        if missing:
            raise RunError(f"missing input {', '.join(map(repr, missing))}", "input")
        given = None
        if outputs is not None:
            names = [o.name for o in self.outputs]
            for name in outputs:
                if name not in names:
                    raise self._unknown(name, names, "output")
            given = [outputs.get(name) for name in names]
        made = self._execute(arrays, given, None)
        return {info.name: array for info, array in zip(self.outputs, made, strict=True)}

    def profile(self, inputs: Mapping[str, Any], runs: int = 5) -> list[dict[str, Any]]:
        """One entry a launch: kernel, label, mean seconds, and GFLOP/s and GB/s by the compiler's estimates."""
        self.run(inputs)
        arrays = [self._array(inputs[i.name], k) for k, i in enumerate(self.inputs)]
        counters = np.zeros(max(1, len(self.program.launches)), np.int64)
        for _ in range(runs):
            self._execute(arrays, None, counters)
        registers = programs.bind_dims(self.program, [np.shape(a) for a in arrays])
        result = []
        for launch, nanoseconds in zip(self.program.launches, counters, strict=False):
            seconds = float(nanoseconds) / runs * 1e-9
            flops, moved = programs.evaluate(launch.flops, registers), programs.evaluate(launch.bytes, registers)
            result.append(
                {
                    "kernel": self.program.kernels[launch.kernel],
                    "label": launch.label,
                    "seconds": seconds,
                    "gflops": flops / seconds * 1e-9 if seconds else 0.0,
                    "gbytes": moved / seconds * 1e-9 if seconds else 0.0,
                }
            )
        return result

    @property
    def memory(self) -> dict[str, Any]:
        """Bytes of the weights, and the arena's size as a formula of the dimensions (an int where it is fixed)."""
        arena = self.program.arena
        return {
            "weights": sum(w.bytes for w in self.program.weights),
            "arena": arena if isinstance(arena, int) else programs.text_of(arena),
        }

    def self_test(self, rtol: float = 1e-3, atol: float = 1e-4) -> float:
        """Runs the package's own test vectors; gives the largest error, or raises a RunError that names the output."""
        from . import safetensors

        view = self.package.archive.view("selftest.safetensors")
        tensors, start = safetensors.read(view, "selftest.safetensors")
        specs = [("input:", s) for s in self.program.inputs] + [("output:", s) for s in self.program.outputs]
        arrays = {}
        for prefix, spec in specs:
            if prefix + spec.name not in tensors:
                raise RunError(f"{str(self.path)!r} has no test vectors")
            _, shape, begin, end = tensors[prefix + spec.name]
            arrays[prefix + spec.name] = np.frombuffer(view[start + begin : start + end], numpy_dtype(spec.dtype)).reshape(shape)
        made = self.run({s.name: arrays["input:" + s.name] for s in self.program.inputs})
        worst = 0.0
        for spec in self.program.outputs:
            got, expected = made[spec.name].astype(np.float64), arrays["output:" + spec.name].astype(np.float64)
            if got.shape != expected.shape or not np.allclose(got, expected, rtol, atol, equal_nan=True):
                raise RunError(f"self test: output {spec.name!r} differs from what the compiler computed", "internal")
            finite = np.isfinite(expected)
            worst = max(worst, float(np.abs(got - expected)[finite].max(initial=0.0)))
        return worst

    def close(self) -> None:
        """Ends the thread pool, once calls under way in other threads are done; the model can't be called afterwards."""
        self._closed = True
        self._end_pool()

    def _end_pool(self) -> None:
        with self._lock:
            if len(self._states) < len(self._all):
                return  # the last call under way ends it
            pool, self._pool = self._pool, None
        if pool and self._pool_process == os.getpid():
            self._library.everport_pool_destroy(pool)

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True) and not sys.is_finalizing():
            self.close()

    # -- inside --------------------------------------------------------------------------------------------------------

    def _unknown(self, name: str, names: Sequence[str], what: str) -> RunError:
        import difflib

        lowered = {n.lower(): n for n in names}
        close = difflib.get_close_matches(name.lower(), lowered, 1)
        hint = f"did you mean {lowered[close[0]]!r}?" if close else f"it has: {', '.join(names)}"
        return RunError(f"the model has no {what} {name!r}; {hint}", what)

    def _pool_pointer(self) -> int | None:
        if self.threads < 2:
            return None
        if self._pool is None or self._pool_process != os.getpid():
            with self._lock:
                if self._pool is None or self._pool_process != os.getpid():
                    self._pool = self._library.everport_pool_create(self.threads) or 0
                    self._pool_process = os.getpid()
        return self._pool or None

    def _execute(self, arrays: Sequence[Any], given: Sequence[Any] | None, counters: np.ndarray | None) -> list[np.ndarray]:
        try:
            state = self._states.pop()
        except IndexError:
            state = _State(self)
            self._all.append(state)
        try:
            if self._closed:
                raise RunError("the model is closed", "input")
            return self._execute_in(state, arrays, given, counters)
        finally:
            self._states.append(state)
            if self._closed:
                self._end_pool()

    def _execute_in(
        self, state: _State, arrays: Sequence[Any], given: Sequence[Any] | None, counters: np.ndarray | None
    ) -> list[np.ndarray]:
        kept = []
        shapes = state.shapes
        for k, value in enumerate(arrays):
            array = self._array(value, k)
            kept.append(array)
            tensor, shape = state.inputs[k], shapes[k]
            tensor.data = array.ctypes.data or 64
            for axis, extent in enumerate(array.shape):
                shape[axis] = extent
        first = len(self.inputs)
        state.made = [None] * len(self.outputs)
        for k in range(len(self.outputs)):
            tensor = state.outputs[k]
            target = given[k] if given is not None else None
            if target is None:
                tensor.data = None
                continue
            self._check_output(target, k)
            if any(np.may_share_memory(target, array) for array in kept):
                raise RunError(f"the array for output {self.outputs[k].name!r} overlaps an input", "output")
            state.made[k] = target
            tensor.data = target.ctypes.data or 64
            for axis, extent in enumerate(target.shape):
                shapes[first + k][axis] = extent
        state.call.pool = self._pool_pointer()
        state.call.profile = None if counters is None else counters.ctypes.data
        code = self._run(*state.pointers)
        made, state.made = state.made, []
        if code:
            raise self._failed(state)
        return made

    def _array(self, value: Any, k: int) -> np.ndarray:
        info = self.inputs[k]
        if not isinstance(value, np.ndarray):
            if hasattr(value, "__dlpack__"):
                try:
                    value = np.from_dlpack(value)
                except (RuntimeError, BufferError, TypeError, ValueError) as error:
                    raise RunError(f"input {info.name!r} cannot be read through DLPack: {error}", "input") from None
            elif isinstance(value, np.generic):
                value = np.asarray(value)
            else:
                raise RunError(f"input {info.name!r} must be an array, not {type(value).__name__}", "input")
        if value.dtype != info.numpy_dtype:
            if info.dtype not in _EXTENDED or value.dtype != np.dtype(_EXTENDED[info.dtype][1]):
                raise RunError(f"input {info.name!r} must be {info.numpy_dtype} ({info.dtype}), got {value.dtype}", "dtype")
        if value.ndim != len(info.shape):
            raise RunError(
                f"input {info.name!r} must have {len(info.shape)} dimensions ({_shape(info.shape)}), got {_shape(value.shape)}",
                "shape",
            )
        return value if value.flags.c_contiguous else np.ascontiguousarray(value)

    def _check_output(self, target: Any, k: int) -> None:
        info = self.outputs[k]
        if not isinstance(target, np.ndarray) or target.dtype != info.numpy_dtype or target.ndim != len(info.shape):
            raise RunError(f"output {info.name!r} must be a {info.numpy_dtype} array of {len(info.shape)} dimensions", "output")
        if not target.flags.c_contiguous or not target.flags.writeable:
            raise RunError(f"the array for output {info.name!r} must be contiguous and writeable", "output")

    def _failed(self, state: _State) -> RunError:
        e = state.error
        if e.code == 3:
            check = [i for i in self.program.instructions if isinstance(i, programs.Check)][e.check]
            got = f"expected {e.expected}, got {e.actual}"
            if e.argument < 0:
                return RunError(f"{check.message} ({e.expected} and {e.actual})", "shape")
            info = self.inputs[e.argument]
            shape = [state.shapes[e.argument][a] for a in range(len(info.shape))]
            if "must be" in check.message:
                got = f"got {e.actual}"
                return RunError(f"{check.message}; {got} in shape {_shape(shape)}", "range")
            return RunError(
                f"input {info.name!r} has the shape {_shape(shape)}, the model takes {_shape(info.shape)}: axis {e.axis}: {got}",
                "shape",
            )
        if e.code == 4:
            info = self.outputs[e.argument]
            return RunError(f"output {info.name!r}, axis {e.axis}: expected {e.expected}, the given array has {e.actual}", "output")
        if e.code == 5:
            what = "the arena" if e.argument < 0 else f"output {self.outputs[e.argument].name!r}"
            return RunError(f"no memory for {what} ({e.expected} bytes)", "memory")
        return RunError(f"the native code failed with code {e.code} on argument {e.argument}", "internal")


def _shape(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"


_loaded = itertools.count()


def open_library(data: Any, what: str) -> ctypes.CDLL:
    """Native code from memory where the system offers it, else from a private temporary file."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("everport-model")
        try:
            os.write(descriptor, data)
            # The loader takes a name it has seen for the same library, and descriptors are reused: spell each path differently.
            number = next(_loaded)
            spelling = "".join("./" if number >> bit & 1 else "/" for bit in range(32))
            return _dlopen(f"/proc/self/{spelling}fd/{descriptor}", what)
        finally:
            os.close(descriptor)
    import tempfile

    handle, path = tempfile.mkstemp(suffix=".so", prefix="everport-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        return _dlopen(path, what)
    finally:
        os.unlink(path)


def _dlopen(path: str, what: str) -> ctypes.CDLL:
    try:
        return ctypes.CDLL(path)
    except OSError as error:
        raise RunError(f"{what}: the native code cannot be loaded: {error}") from None


def load(path: str | os.PathLike, threads: int | None = None, verify: bool = False) -> Model:
    """Opens a package. `threads` counts the calling thread (1 starts none); `verify` also compares the weights' hash."""
    return Model(path, threads, verify)
