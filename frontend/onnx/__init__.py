"""The ONNX importer: a model file or proto becomes a Relax module."""

from everport.frontend.onnx.importer import DimSpec, import_onnx

__all__ = ["DimSpec", "import_onnx"]
