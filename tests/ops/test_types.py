"""Casts, bitcasts and quantisation of every element type, from the model file to compiled results, against numpy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype, tensor_dtype_to_np_dtype

import everport
from everport.ir.dtype import DTYPES, DType, dtype
from everport.ir.errors import UnsupportedError

TYPES = list(DTYPES.values())
BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


def code(t: DType) -> int:
    return int(np_dtype_to_tensor_dtype(t.numpy))


def built(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], outputs: dict[str, Any], opset: int = 25) -> onnx.ModelProto:
    """A model of inputs like the given arrays (shape () or fully dynamic) and outputs by name and numpy type."""
    graph = helper.make_graph(
        nodes,
        "types",
        [helper.make_tensor_value_info(n, np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, np_dtype_to_tensor_dtype(np.dtype(t)), None) for n, t in outputs.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=12)


def ran(nodes: list[onnx.NodeProto], inputs: dict[str, np.ndarray], outputs: dict[str, Any], folder: Path, opset: int = 25) -> dict[str, np.ndarray]:
    path = everport.compile(built(nodes, inputs, outputs, opset), output=folder / "m.everport", opt=1)
    with everport.load(path, threads=1) as model:
        return model.run(inputs)


def equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal values (the sign of a zero counts, any NaN is any NaN)."""
    x, y = a.astype(np.float64), b.astype(np.float64)
    same = (np.isnan(x) & np.isnan(y)) | ((x == y) & (np.signbit(x) == np.signbit(y)))
    return a.dtype == b.dtype and bool(np.all(same))


def sample(t: DType) -> np.ndarray:
    """Values of a type: every one of those of 8 bits and less."""
    if t.is_bool:
        return np.array([False, True])
    if t.bits <= 8:
        return np.arange(1 << t.bits, dtype=np.uint8).view(t.numpy)
    if t.is_int:
        edges = [v for v in (0, 1, -1, 2, 3, 7, 8, 15, 16, 127, 128, 255, 256, -8, -9, -128, t.min_value, t.max_value) if t.min_value <= v <= t.max_value]
        return np.array(edges, object).astype(t.numpy)
    base = [0.0, -0.0, 1, -1, 0.5, 1.5, 2.5, -2.5, 5, 7, 9, 240, 248, 448, 463, 465, 1e-3, 6e4, -6e4, 1e9, 2.0**-20, np.nan, np.inf, -np.inf]
    with np.errstate(all="ignore"):
        return np.array(base).astype(t.numpy)


def expected_cast(x: np.ndarray, source: DType, to: DType) -> np.ndarray:
    """What the standard says of a cast; numpy and ml_dtypes round."""
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        if to.is_bool:
            return wide != 0
        if to.name == "f8e8m0":
            return expected_power(wide, True, "up")
        if to.is_int and source.is_float:
            low, high = float(to.min_value), float(to.max_value)
            whole = np.trunc(wide)
            if to.bits < 8:
                whole = np.where((whole >= low) & (whole <= high), whole, 0)
            numbers = [0 if v != v else int(min(max(v, low), high)) for v in whole]
            return np.array([min(v, int(to.max_value)) for v in numbers], object).astype(np.uint64 if to.kind == "uint" else np.int64).astype(to.numpy)
        if to.is_int:
            numbers = [(int(v) - int(to.min_value)) % (1 << to.bits) + int(to.min_value) for v in x]
            return np.array(numbers, object).astype(np.uint64 if to.kind == "uint" else np.int64).astype(to.numpy)
        if to.name.startswith("f8"):
            wide = np.clip(wide, to.min_value, to.max_value)
        if to.bits < 32 and source.is_int:
            wide = wide.astype(np.float32)
        return wide.astype(to.numpy) if source.is_bool or source.is_float or to.bits < 32 else x.astype(to.numpy)


def expected_power(x: np.ndarray, saturate: bool, mode: str) -> np.ndarray:
    """The codes of f8e8m0 by logarithms of exact powers."""
    result = np.full(x.shape, 255, np.uint8)
    for k, v in enumerate(np.ravel(x)):
        v = float(v)
        if v != v or v < 0 or (not saturate and not 2.0**-127 <= v <= 2.0**127):
            continue
        v = min(max(v, 2.0**-127), 2.0**127)
        mantissa, exponent = np.frexp(v)  # v = mantissa * 2**exponent, mantissa in [0.5, 1)
        down = int(exponent) - 1
        up = down + (mantissa > 0.5)
        power = {"up": up, "down": down, "nearest": up if mantissa >= 0.75 else down}[mode]
        result.reshape(-1)[k] = power + 127
    return result.view(ml_dtypes.float8_e8m0fnu)


@pytest.mark.parametrize("source", TYPES, ids=str)
def test_casts_to_every_type(source: DType, tmp_path: Path) -> None:
    x = sample(source)
    nodes = [helper.make_node("Cast", ["x"], [f"to_{t}"], to=code(t)) for t in TYPES]
    made = ran(nodes, {"x": x}, {f"to_{t}": t.numpy for t in TYPES}, tmp_path, 28)
    for t in TYPES:
        expected = expected_cast(x, source, t)
        if source.is_float and t.name in ("f4e2m1", "f6e2m3", "f6e3m2"):
            made[f"to_{t}"], expected = (np.where(np.isnan(x.astype(np.float64)), 0, v.astype(np.float64)) for v in (made[f"to_{t}"], expected))
        assert equal(made[f"to_{t}"], expected), t


@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
@pytest.mark.parametrize("saturate", [0, 1])
def test_casts_to_e8m0(saturate: int, mode: str, tmp_path: Path) -> None:
    powers = np.float64(2) ** np.arange(-130, 130)
    x64 = np.concatenate([powers, powers * 1.5, np.nextafter(powers * 1.5, 0), np.nextafter(powers, 0), np.nextafter(powers, np.inf)])
    x64 = np.concatenate([x64, [0, -1, np.inf, -np.inf, np.nan, 1e-300, 1e300]])
    with np.errstate(all="ignore"):
        inputs = {"f64": x64, "f32": x64.astype(np.float32), "f16": x64.astype(np.float16), "i64": np.array([0, 1, 3, 5, 6, 1000, -2])}
    nodes = [helper.make_node("Cast", [n], [f"y_{n}"], to=TensorProto.FLOAT8E8M0, saturate=saturate, round_mode=mode) for n in inputs]
    made = ran(nodes, inputs, {f"y_{n}": ml_dtypes.float8_e8m0fnu for n in inputs}, tmp_path, 24)
    for name, x in inputs.items():
        assert np.array_equal(made[f"y_{name}"].view(np.uint8), expected_power(x.astype(np.float64), bool(saturate), mode).view(np.uint8)), name


@pytest.mark.parametrize("bits", [2, 4, 6, 8, 16, 32, 64])
def test_bitcasts_and_moves(bits: int, tmp_path: Path) -> None:
    """Bits stay as they are in every pair of types of one width, behind a kernel and as outputs at once."""
    group = [t for t in TYPES if t.bits == bits and not t.is_bool]
    raw = np.random.default_rng(bits).integers(0, 1 << min(bits, 62), (3, 4)).astype(BITS[group[0].itemsize])
    nodes, outputs = [], {}
    for t in group:
        nodes += [helper.make_node("BitCast", ["x"], [f"a_{t}"], to=code(t)), helper.make_node("Transpose", [f"a_{t}"], [f"b_{t}"])]
        nodes.append(helper.make_node("Concat", [f"b_{t}", f"b_{t}"], [f"c_{t}"], axis=0))
        outputs |= {f"a_{t}": t.numpy, f"c_{t}": t.numpy}
    made = ran(nodes, {"x": raw.view(group[0].numpy)}, outputs, tmp_path, 26)
    for t in group:
        for name, wanted in ((f"a_{t}", raw), (f"c_{t}", np.concatenate([raw.T, raw.T]))):
            assert equal(made[name], np.ascontiguousarray(wanted).view(t.numpy)), name


def test_bitcasts_of_weights(tmp_path: Path) -> None:
    """Small ones are evaluated at import; large ones are read in place."""
    for count in (6, 40_000):
        w = np.arange(count, dtype=np.float32).reshape(2, -1)
        nodes = [helper.make_node("BitCast", ["w"], ["v"], to=TensorProto.INT32), helper.make_node("Add", ["v", "x"], ["y"])]
        proto = built(nodes, {"x": np.ones(1, np.int32)}, {"y": np.int32, "v": np.int32}, 26)
        proto.graph.initializer.append(numpy_helper.from_array(w, "w"))
        with everport.load(everport.compile(proto, output=tmp_path / f"{count}.everport")) as model:
            made = model.run({"x": np.ones(1, np.int32)})
        assert np.array_equal(made["v"], w.view(np.int32)) and np.array_equal(made["y"], w.view(np.int32) + 1)


def test_bitcasts_between_sizes_are_refused(tmp_path: Path) -> None:
    for source, to in (("f32", "i64"), ("i8", "i4"), ("f16", "u8")):
        x = np.zeros(4, dtype(source).numpy)
        with pytest.raises(UnsupportedError) as error:
            ran([helper.make_node("BitCast", ["x"], ["y"], to=code(dtype(to)))], {"x": x}, {"y": dtype(to).numpy}, tmp_path, 26)
        assert f"{source} to {to}" in str(error.value)


@pytest.mark.parametrize("t", [t for t in TYPES if t.bits < 8], ids=str)
@pytest.mark.parametrize("where", ["raw", "field", "external"])
def test_packed_weights(t: DType, where: str, tmp_path: Path) -> None:
    values = np.random.default_rng(t.bits).integers(0, 1 << t.bits, (3, 5), dtype=np.uint8).view(t.numpy)
    proto = built([helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)], {}, {"y": np.float32}, 28)
    if where == "field":  # int32_data
        proto.graph.initializer.append(helper.make_tensor("w", code(t), values.shape, values.astype(np.float32).ravel().tolist()))
        assert not proto.graph.initializer[0].HasField("raw_data")
    else:
        proto.graph.initializer.append(numpy_helper.from_array(values, "w"))
    if where == "external":
        onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, size_threshold=0, location="w.bin")
        assert (tmp_path / "w.bin").stat().st_size == (15 * t.bits + 7) // 8
    with everport.load(everport.compile(tmp_path / "m.onnx" if where == "external" else proto, output=tmp_path / "m.everport")) as model:
        assert equal(model(), values.astype(np.float32))


QUANTIZED = [dtype(n) for n in ("i2", "u2", "i4", "u4", "i8", "u8", "i16", "u16", "f8e4m3fn", "f8e4m3fnuz", "f8e5m2", "f8e5m2fnuz", "f4e2m1")]


def spread(v: np.ndarray, form: str) -> np.ndarray:
    return {"tensor": lambda: v, "axis": lambda: v.reshape(1, -1, 1), "block": lambda: np.repeat(v, 3, 1)[:, :4]}[form]()


@pytest.mark.parametrize("form", ["tensor", "axis", "block"])
@pytest.mark.parametrize("t", QUANTIZED, ids=str)
def test_quantize_and_dequantize(t: DType, form: str, tmp_path: Path) -> None:
    """Every quantised type, scales of every float type, with and without zero points."""
    source = np.random.default_rng(0)
    shape = {"tensor": (), "axis": (4,), "block": (2, 2, 5)}[form]
    how = {"tensor": {}, "axis": {"axis": 1}, "block": {"axis": 1, "block_size": 3}}[form]
    inputs: dict[str, np.ndarray] = {}
    nodes, outputs, wanted = [], {}, {}
    for name in ("f32", "f16", "bf16"):
        real = dtype(name).numpy
        x = (source.standard_normal((2, 4, 5)) * 4).astype(real)
        x[0, 0, :3] = [1000, -1000, 0]
        scale = source.uniform(0.1, 2, shape).astype(real)
        inputs |= {f"x{name}": x, f"s{name}": scale}
        low, high = (int(t.min_value), int(t.max_value)) if t.is_int else (0, 0)
        zero = np.asarray(source.integers(low, high + 1, shape)).astype(np.int64).astype(t.numpy) if t.is_int else np.zeros(shape, t.numpy)
        inputs[f"z{name}"] = zero
        for tag, extra, z in ((f"{name}_zero", [f"z{name}"], zero), (f"{name}_none", [], np.zeros((), t.numpy))):
            nodes.append(helper.make_node("QuantizeLinear", [f"x{name}", f"s{name}", *extra], [f"q_{tag}"], output_dtype=code(t), **how))
            nodes.append(helper.make_node("DequantizeLinear", [f"q_{tag}", f"s{name}", *extra], [f"d_{tag}"], **how))
            outputs |= {f"q_{tag}": t.numpy, f"d_{tag}": real}
            quotient = x / spread(scale, form)
            moved = np.rint(quotient).astype(np.float64) + (spread(z, form).astype(np.float64) if extra and t.is_int else 0) if t.is_int else quotient
            q = np.clip(moved, t.min_value, t.max_value).astype(np.int64 if t.is_int else moved.dtype).astype(t.numpy)
            centre = q.astype(np.float32) - (spread(z, form).astype(np.float32) if extra else np.float32(0))
            wanted |= {f"q_{tag}": q, f"d_{tag}": (centre * spread(scale, form).astype(np.float32)).astype(real)}
    made = ran(nodes, inputs, outputs, tmp_path)
    for name, array in wanted.items():
        a, b = made[name].astype(np.float64), array.astype(np.float64)
        assert made[name].dtype == array.dtype and np.array_equal(a, b), name


def test_quantize_names_its_precision_and_scale_types(tmp_path: Path) -> None:
    x = np.array([1.0, 2.9995, -3.3, 100, 7.5], np.float32)
    scale = np.array(0.3, np.float32)
    power = np.array(0.5).astype(ml_dtypes.float8_e8m0fnu)
    whole, ints = np.array(3, np.int32), np.array([1, 4, 5, -7, 100], np.int32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["half"], precision=TensorProto.FLOAT16, output_dtype=TensorProto.INT16),
        helper.make_node("QuantizeLinear", ["x", "p"], ["power"], output_dtype=TensorProto.INT8),
        helper.make_node("QuantizeLinear", ["i", "w"], ["whole"], output_dtype=TensorProto.INT8),
        helper.make_node("DequantizeLinear", ["power", "p"], ["back"], output_dtype=TensorProto.BFLOAT16),
    ]
    inputs = {"x": x, "s": scale, "p": power, "i": ints, "w": whole}
    made = ran(nodes, inputs, {"half": np.int16, "power": np.int8, "whole": np.int8, "back": ml_dtypes.bfloat16}, tmp_path)
    assert made["half"].tolist() == np.rint(x.astype(np.float16) / scale.astype(np.float16)).astype(np.int16).tolist()
    assert made["power"].tolist() == [2, 6, -7, 127, 15]
    assert made["whole"].tolist() == [0, 1, 2, -2, 33]
    assert equal(made["back"], (made["power"] * 0.5).astype(ml_dtypes.bfloat16))


def test_what_quantisation_refuses(tmp_path: Path) -> None:
    x, wrong = np.zeros((2, 4, 5), np.float32), np.ones((2, 4), np.float32)
    zero = np.zeros((), np.int8)
    for node, inputs, words in (
        (helper.make_node("QuantizeLinear", ["x", "s"], ["y"]), {"x": x, "s": wrong}, "without a block size"),
        (helper.make_node("QuantizeLinear", ["x", "s"], ["y"], block_size=2), {"x": x, "s": wrong}, "rank 2 for a tensor of rank 3"),
        (helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"], output_dtype=TensorProto.UINT8), {"x": x, "s": x[0, 0, 0], "z": zero}, "with a zero point of i8"),
    ):  # fmt: skip
        with pytest.raises(UnsupportedError, match="cannot be imported") as error:
            ran([node], {k: np.asarray(v) for k, v in inputs.items()}, {"y": np.uint8}, tmp_path)
        assert words in str(error.value)


def integers(source: np.random.Generator, t: str, shape: tuple[int, ...]) -> np.ndarray:
    kind = np.dtype(t)
    info = np.iinfo(kind)
    return source.integers(info.min, info.max + 1, shape).astype(kind)


@pytest.mark.parametrize(("a", "b"), [("uint8", "int8"), ("int8", "int8"), ("uint8", "uint8"), ("int8", "uint8")])
def test_integer_products_with_zero_points_per_row_and_column(a: str, b: str, tmp_path: Path) -> None:
    source = np.random.default_rng(1)
    inputs = {
        "a": integers(source, a, (5, 7)), "b": integers(source, b, (7, 6)), "za": integers(source, a, (5,)), "zb": integers(source, b, (6,)),
        "n": integers(source, a, (2, 3, 5, 7)), "zn": integers(source, a, (2, 3, 5, 1)),
        "x": integers(source, a, (1, 2, 6, 6)), "w": integers(source, b, (3, 2, 3, 3)), "zx": integers(source, a, ()), "zw": integers(source, b, (3,)),
    }  # fmt: skip
    nodes = [
        helper.make_node("MatMulInteger", ["a", "b", "za", "zb"], ["rows"]),
        helper.make_node("MatMulInteger", ["n", "b", "zn", "zb"], ["batch"]),
        helper.make_node("MatMulInteger", ["a", "b", "", "zb"], ["columns"]),
        helper.make_node("ConvInteger", ["x", "w", "zx", "zw"], ["conv"], pads=[1, 1, 1, 1]),
    ]
    made = ran(nodes, inputs, dict.fromkeys(("rows", "batch", "columns", "conv"), np.int32), tmp_path)
    w = {k: v.astype(np.int32) for k, v in inputs.items()}
    assert np.array_equal(made["rows"], (w["a"] - w["za"][:, None]) @ (w["b"] - w["zb"]))
    assert np.array_equal(made["batch"], (w["n"] - w["zn"]) @ (w["b"] - w["zb"]))
    assert np.array_equal(made["columns"], w["a"] @ (w["b"] - w["zb"]))
    padded = np.pad(w["x"] - w["zx"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    assert np.array_equal(made["conv"], np.einsum("nchwkl,ockl->nohw", windows, w["w"] - w["zw"][:, None, None, None]))


def test_quantized_products(tmp_path: Path) -> None:
    """Per row and column, in integers and in fp8, with f16 scales; integers agree with ONNX Runtime where it runs them
    (b has 7 bits: its sums of two u8 * i8 products saturate at 16)."""
    source = np.random.default_rng(2)
    inputs = {
        "a": integers(source, "uint8", (5, 16)), "b": integers(source, "int8", (16, 6)) // 2, "za": np.array(120, np.uint8),
        "zb": integers(source, "int8", (6,)), "sa": np.array(0.02, np.float32), "sb": source.uniform(0.01, 0.02, 6).astype(np.float32),
        "sy": np.array(0.9, np.float32), "zy": np.array(7, np.int8), "ua": integers(source, "uint8", (5,)),
        "ra": source.uniform(0.01, 0.02, 5).astype(np.float32), "ha": np.array(0.02, np.float16), "hb": np.array(0.01, np.float16),
        "hy": np.array(0.9, np.float16), "z0": np.array(3, np.int8), "zu": np.array(128, np.uint8),
    }  # fmt: skip
    f8 = ml_dtypes.float8_e4m3fn
    inputs |= {"fa": source.standard_normal((5, 16)).astype(f8), "fb": source.standard_normal((16, 6)).astype(f8), "fz": np.array(0).astype(f8)}
    nodes = [
        helper.make_node("QLinearMatMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zy"], ["columns"]),
        helper.make_node("QLinearMatMul", ["a", "sa", "za", "b", "sb", "zb", "sy", "zu"], ["bytes"]),
        helper.make_node("QLinearMatMul", ["a", "ra", "ua", "b", "sb", "zb", "sy", "zy"], ["rows"]),
        helper.make_node("QLinearMatMul", ["a", "ha", "za", "b", "hb", "z0", "hy", "zu"], ["half"]),
        helper.make_node("QLinearMatMul", ["fa", "sa", "fz", "fb", "sb", "fz", "sy", "fz"], ["float8"]),
    ]
    made = ran(nodes, inputs, {"columns": np.int8, "bytes": np.uint8, "rows": np.int8, "half": np.uint8, "float8": f8}, tmp_path)
    w = {k: v.astype(np.float64) for k, v in inputs.items()}

    def quantized(total: np.ndarray, zero: np.ndarray, low: int, high: int) -> np.ndarray:
        return np.clip(np.rint(total) + zero, low, high)

    product = (w["a"] - w["za"]) @ (w["b"] - w["zb"])
    assert np.array_equal(made["columns"], quantized(product * w["sa"] * w["sb"] / w["sy"], w["zy"], -128, 127))
    product = (w["a"] - w["ua"][:, None]) @ (w["b"] - w["zb"])
    assert np.array_equal(made["rows"], quantized(product * w["ra"][:, None] * w["sb"] / w["sy"], w["zy"], -128, 127))
    product = (w["a"] - w["za"]) @ (w["b"] - w["z0"])
    assert np.array_equal(made["half"], quantized(product * w["ha"] * w["hb"] / w["hy"], w["zu"], 0, 255))
    assert equal(made["float8"], (w["fa"] @ w["fb"] * w["sa"] * w["sb"] / w["sy"]).astype(f8))
    used = {k: inputs[k] for k in nodes[1].input}
    session = onnxruntime.InferenceSession(built([nodes[1]], used, {"bytes": np.uint8}, 13).SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.array_equal(session.run(None, used)[0], made["bytes"])


@pytest.mark.parametrize("t", [t for t in TYPES if not t.is_bool], ids=str)
def test_moves_need_no_arithmetic(t: DType, tmp_path: Path) -> None:
    """Every code of a type through Identity, Transpose, Concat, Reshape, Slice, Gather, Expand and Split."""
    raw = np.arange(1 << min(t.bits, 8), dtype=BITS[t.itemsize]).reshape(2, -1)
    x = raw.view(t.numpy)
    nodes = [
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Transpose", ["x"], ["turned"]),
        helper.make_node("Concat", ["x", "x"], ["joined"], axis=1),
        helper.make_node("Constant", [], ["shape"], value_ints=[-1]),
        helper.make_node("Reshape", ["turned", "shape"], ["flat"]),
        helper.make_node("Constant", [], ["at"], value_ints=[1, 0, 1]),
        helper.make_node("Gather", ["x", "at"], ["taken"]),
    ]
    wanted = {"same": x, "turned": x.T, "joined": np.concatenate([x, x], 1), "flat": x.T.reshape(-1), "taken": x[[1, 0, 1]]}
    made = ran(nodes, {"x": x}, dict.fromkeys(wanted, t.numpy), tmp_path)
    for name, array in wanted.items():
        assert equal(made[name], array), name


def test_the_type_codes_are_those_of_onnx() -> None:
    for t in TYPES:
        assert tensor_dtype_to_np_dtype(code(t)) == t.numpy


@pytest.mark.parametrize("rows", [1, 3, 4, 7, 0])
def test_quantisation_of_symbolic_dimensions(rows: int, tmp_path: Path) -> None:
    """One package for every size: per tensor, per axis, and in blocks along the symbolic axis."""
    blocks = "blocks"
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["whole"]),
        helper.make_node("QuantizeLinear", ["x", "sa"], ["axis"], axis=-1, output_dtype=TensorProto.INT4),
        helper.make_node("QuantizeLinear", ["x", "sb"], ["block"], axis=0, block_size=3, output_dtype=TensorProto.INT8),
        helper.make_node("DequantizeLinear", ["block", "sb"], ["back"], axis=0, block_size=3),
        helper.make_node("DynamicQuantizeLinear", ["x"], ["dynamic", "ds", "dz"]),
        helper.make_node("MatMulInteger", ["whole", "w", "z"], ["product"]),
    ]
    source = np.random.default_rng(rows)
    weights = {
        "s": np.array(0.05, np.float32), "z": np.array(120, np.uint8), "sa": np.array([0.5, 1, 0.3, 2, 0.25], np.float32),
        "w": source.integers(-128, 128, (5, 2)).astype(np.int8),
    }  # fmt: skip
    float32 = TensorProto.FLOAT
    graph = helper.make_graph(
        nodes,
        "symbolic",
        [helper.make_tensor_value_info("x", float32, ["rows", 5]), helper.make_tensor_value_info("sb", float32, [blocks, 5])],
        [helper.make_empty_tensor_value_info(n) for n in ("whole", "axis", "block", "back", "dynamic", "ds", "dz", "product")],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    path = everport.compile(proto, dims={"rows": (0, None), blocks: (0, None)}, output=tmp_path / "m.everport", opt=1)
    x = source.standard_normal((rows, 5)).astype(np.float32)
    scales = source.uniform(0.01, 0.1, (-(-rows // 3), 5)).astype(np.float32)
    with everport.load(path, threads=1) as model:
        made = model.run({"x": x, "sb": scales})
    whole = np.clip(np.rint(x / weights["s"]) + 120, 0, 255)
    assert np.array_equal(made["whole"], whole)
    assert np.array_equal(made["axis"].astype(int), np.clip(np.rint(x / weights["sa"]), -8, 7))
    wide = np.repeat(scales, 3, 0)[:rows]
    assert np.array_equal(made["block"], np.clip(np.rint(x / wide), -128, 127))
    assert np.array_equal(made["back"], made["block"].astype(np.float32) * wide)
    assert np.array_equal(made["product"], (whole.astype(np.int32) - 120) @ weights["w"].astype(np.int32))
    if rows:
        low, high = min(0, float(x.min())), max(0, float(x.max()))
        scale = (np.float32(high) - np.float32(low)) / np.float32(255)
        zero = np.clip(np.rint(np.float32(-low) / scale), 0, 255)
        assert (made["ds"], made["dz"]) == (scale, zero)
        assert np.array_equal(made["dynamic"], np.clip(np.rint(x / scale) + zero, 0, 255))
