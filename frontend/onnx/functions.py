"""Operators defined by a function body, ONNX's own or the model's: expanded in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import onnx
from onnx import AttributeProto

from everport.ir.errors import UnsupportedError
from everport.ir.span import Span
from everport.relax.expr import RelaxExpr
from everport.relax.struct_info import TensorInfo

if TYPE_CHECKING:
    from everport.frontend.onnx.importer import GraphImporter


def find_function(
    node: onnx.NodeProto,
    domain: str,
    opset: int,
    inputs: Sequence[RelaxExpr | None],
    local: Mapping[tuple[str, str], onnx.FunctionProto],
) -> onnx.FunctionProto | None:
    """The body that defines the node: the model's own function, or that of ONNX's schema for this opset."""
    if (domain, node.op_type) in local:
        return local[domain, node.op_type]
    if not onnx.defs.has(node.op_type, opset, domain):
        return None
    schema = onnx.defs.get_schema(node.op_type, opset, domain)
    if schema.has_function:
        return schema.function_body
    if schema.has_context_dependent_function:
        types = []
        for value in inputs:
            proto = onnx.TypeProto()
            if value is not None and isinstance(value.info, TensorInfo):
                element = onnx.helper.np_dtype_to_tensor_dtype(value.info.dtype.numpy)
                shape = value.info.static_shape()
                proto = onnx.helper.make_tensor_type_proto(element, shape)
            types.append(proto.SerializeToString())
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        if not versions:
            return None
        body = schema.get_context_dependent_function_with_opset_version(max(versions), node.SerializeToString(), types)
        function = onnx.FunctionProto()
        function.ParseFromString(body)
        return function
    return None


def expand_function(
    importer: GraphImporter,
    function: onnx.FunctionProto,
    node: onnx.NodeProto,
    inputs: Sequence[RelaxExpr | None],
    span: Span,
) -> list[RelaxExpr | None]:
    """Imports a function body in place of a node; attribute references take the node's values or the declared defaults."""
    given = {a.name: a for a in node.attribute}
    defaults = {a.name: a for a in function.attribute_proto}
    domain = "" if node.domain == "ai.onnx" else node.domain
    if onnx.defs.has(node.op_type, importer.opsets.get(domain, 1), domain):
        schema = onnx.defs.get_schema(node.op_type, importer.opsets.get(domain, 1), domain)
        for name, attribute in schema.attributes.items():
            if attribute.default_value.name:
                defaults.setdefault(name, attribute.default_value)
    values, poisoned, opsets = dict(importer.values), set(importer.poisoned), dict(importer.opsets)
    importer.values = {"": None}
    for position, name in enumerate(function.input):
        importer.values[name] = inputs[position] if position < len(inputs) else None
    importer.opsets = {**opsets, **{("" if o.domain == "ai.onnx" else o.domain): o.version for o in function.opset_import}}
    failures = len(importer.failures)
    importer.import_nodes([_bound(n, given, defaults) for n in function.node])
    results = [importer.values.get(o) for o in function.output]
    importer.values, importer.poisoned, importer.opsets = values, poisoned, opsets
    if len(importer.failures) > failures:
        inner = importer.failures[failures:]
        del importer.failures[failures:]
        reasons = sorted({f"{op}: {reason}" for op, _, reason in inner})
        raise UnsupportedError(f"its function body cannot be imported ({'; '.join(reasons)})", span=span)
    return results


def _bound(
    node: onnx.NodeProto, given: Mapping[str, AttributeProto], defaults: Mapping[str, AttributeProto]
) -> onnx.NodeProto:
    """A node of a body with its attribute references resolved, in subgraphs too."""
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    del copy.attribute[:]
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            source = given.get(attribute.ref_attr_name) or defaults.get(attribute.ref_attr_name)
            if source is not None:
                bound = copy.attribute.add()
                bound.CopyFrom(source)
                bound.name = attribute.name
            continue
        kept = copy.attribute.add()
        kept.CopyFrom(attribute)
        if attribute.type == AttributeProto.GRAPH:
            del kept.g.node[:]
            kept.g.node.extend(_bound(n, given, defaults) for n in attribute.g.node)
    return copy
