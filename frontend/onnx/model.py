"""Reading a model file: the protobuf, and external data mapped from the model's own folder.

External data may name files inside the folder of the (resolved) model only: no absolute path, no `..`, no link that leads
out. Declared sizes are checked against the tensor's shape and the file's real size.
"""

from __future__ import annotations

import math
from pathlib import Path, PurePosixPath, PureWindowsPath

import google.protobuf.message
import numpy as np
import onnx
from google.protobuf.message import Message
from onnx import TensorProto, numpy_helper

from everport.ir.errors import CompileError, UnsupportedError


def read_model(source: str | Path | onnx.ModelProto) -> tuple[onnx.ModelProto, Path | None, str]:
    """The model, its folder (None for a model in memory), and a name for messages. A symlinked file is resolved first."""
    if isinstance(source, onnx.ModelProto):
        check_text(source, "model")
        return source, None, source.graph.name or "model"
    path = Path(source)
    if not path.exists():
        raise CompileError(f"there is no file {str(path)!r}", hint="check the path of the model")
    if path.is_dir():
        raise CompileError(f"{str(path)!r} is a folder", hint="name an .onnx file; Hugging Face folders are not read yet")
    resolved = path.resolve()
    data = resolved.read_bytes()
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except google.protobuf.message.DecodeError as error:
        raise CompileError(f"{str(path)!r} is not an ONNX model: {error}", hint="is the download complete?") from None
    if not model.HasField("graph") or not model.opset_import:
        raise CompileError(f"{str(path)!r} is not an ONNX model: it has no graph or names no operator set")
    check_text(model, path.name)
    return model, resolved.parent, path.name


def check_text(message: Message, label: str) -> None:
    """Refuses a message in which a text field, at any depth, is not UTF-8 (protobuf hands such fields out as bytes)."""
    stack = [message]
    while stack:
        current = stack.pop()
        for field, value in current.ListFields():
            repeated = not isinstance(value, (str, bytes, Message)) and hasattr(value, "__len__")
            if field.type == field.TYPE_MESSAGE:
                stack.extend(value if repeated else [value])
            elif field.type == field.TYPE_STRING:
                for text in value if repeated else [value]:
                    if not isinstance(text, str):
                        what = f"the field {field.full_name} is not text: {text!r}"
                        raise CompileError(f"{label}: {what}", hint="is the file damaged?")


def tensor_array(tensor: TensorProto, folder: Path | None, source: str) -> np.ndarray:
    """The values of an initializer or constant; external data is mapped, never copied
    (but for types of less than 8 bits, which are packed in files)."""
    what = f"tensor {tensor.name!r}"
    if any(d < 0 for d in tensor.dims):
        raise CompileError(f"{source}: {what} has a negative dimension: {list(tensor.dims)}")
    if tensor.data_type == TensorProto.STRING:
        raise UnsupportedError(f"{source}: {what} holds strings")
    if tensor.data_type not in TensorProto.DataType.values() or tensor.data_type == TensorProto.UNDEFINED:
        raise CompileError(f"{source}: {what} has an unknown data type ({tensor.data_type})")
    if tensor.data_location == TensorProto.EXTERNAL:
        return _external(tensor, folder, source)
    try:
        return np.ascontiguousarray(numpy_helper.to_array(tensor)).reshape(tuple(tensor.dims))
    except (ValueError, TypeError) as error:
        raise CompileError(f"{source}: {what} of shape {list(tensor.dims)} has unfitting data: {error}") from None


def _external(tensor: TensorProto, folder: Path | None, source: str) -> np.ndarray:
    what = f"tensor {tensor.name!r}"
    fields = {entry.key: entry.value for entry in tensor.external_data}
    location = fields.get("location", "")
    if folder is None:
        raise CompileError(f"{what} has external data, and a model in memory has no folder", hint="compile from its file")
    if not location:
        raise CompileError(f"{source}: {what} has external data without a location")
    path = _contained(folder, location, what, source)
    dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type))
    count = math.prod(tensor.dims)
    bits = _PACKED.get(tensor.data_type, dtype.itemsize * 8)
    wanted = (count * bits + 7) // 8
    try:
        offset, length = int(fields.get("offset", 0)), int(fields.get("length", wanted))
    except ValueError:
        raise CompileError(f"{source}: {what} has an external offset or length that is no integer") from None
    size = path.stat().st_size
    if length != wanted:
        raise CompileError(f"{source}: {what} of {count} {dtype} elements declares {length} bytes of external data")
    if offset < 0 or offset + length > size:
        raise CompileError(
            f"{source}: {what} wants bytes {offset} to {offset + length} of {location!r}, which has {size}",
            hint="is the download of the data file complete?",
        )
    if count == 0:
        return np.empty(tuple(tensor.dims), dtype)
    raw = np.memmap(path, np.uint8, "r", offset, (length,))
    if bits < 8:
        raw = _unpacked(raw, bits, count)
    return raw.view(dtype).reshape(tuple(tensor.dims))


_PACKED = {
    TensorProto.INT4: 4, TensorProto.UINT4: 4, TensorProto.FLOAT4E2M1: 4, TensorProto.INT2: 2, TensorProto.UINT2: 2,
    TensorProto.FLOAT6E2M3: 6, TensorProto.FLOAT6E3M2: 6,
}  # fmt: skip


def _unpacked(raw: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Elements of a stream of bits (the lowest bit of a byte first), a byte each."""
    stream = np.unpackbits(raw, count=count * bits, bitorder="little").reshape(count, bits)
    return np.packbits(stream, axis=1, bitorder="little").reshape(count)


def _contained(folder: Path, location: str, what: str, source: str) -> Path:
    """The file that `location` names inside `folder`; a CompileError if it is elsewhere."""
    parts = PurePosixPath(location)
    if parts.is_absolute() or PureWindowsPath(location).is_absolute() or PureWindowsPath(location).drive or "\0" in location:
        raise CompileError(f"{source}: {what} has external data at {location!r}: absolute paths are refused")
    if ".." in parts.parts or "\\" in location:
        raise CompileError(f"{source}: {what} has external data at {location!r}: the path must stay in the model's folder")
    path = folder / location
    resolved = path.resolve()
    if not resolved.is_relative_to(folder.resolve()):
        raise CompileError(f"{source}: {what} has external data at {location!r}, a link that leads out of the model's folder")
    if not resolved.is_file():
        raise CompileError(f"{source}: {what} has external data in {location!r}, which is not in {str(folder)!r}")
    return resolved
