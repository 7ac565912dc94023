"""The converters: domain -> operator -> [(since_version, converter)], made of one table a family."""

from __future__ import annotations

from everport.frontend.onnx.binary import BINARY
from everport.frontend.onnx.context import Converter, Rows
from everport.frontend.onnx.ml import ML
from everport.frontend.onnx.nn import NN
from everport.frontend.onnx.quantize import QUANTIZE
from everport.frontend.onnx.recurrent import RECURRENT
from everport.frontend.onnx.reduce import REDUCE
from everport.frontend.onnx.shape import SHAPE
from everport.frontend.onnx.signal import SIGNAL
from everport.frontend.onnx.text import TEXT
from everport.frontend.onnx.training import TRAINING
from everport.frontend.onnx.unary import UNARY
from everport.frontend.onnx.vision import VISION

STANDARD: Rows = {
    **UNARY,
    **BINARY,
    **REDUCE,
    **SHAPE,
    **NN,
    **QUANTIZE,
    **RECURRENT,
    **SIGNAL,
    **TEXT,
    **VISION,
}

CONVERTERS: dict[str, Rows] = {"": STANDARD, "ai.onnx.ml": ML, "ai.onnx.preview.training": TRAINING}


def find_converter(domain: str, op: str, opset: int) -> Converter | None:
    """The converter with the highest since_version not above `opset`, or None."""
    rows = CONVERTERS.get(domain, {}).get(op, [])
    fitting = [row for row in rows if row[0] <= opset]
    return max(fitting, key=lambda row: row[0])[1] if fitting else None
