"""From an ONNX graph to a Relax function, node by node over the converter table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, TensorProto

from everport.frontend.onnx.context import NodeContext
from everport.frontend.onnx.dims import DimSpec, DimTable
from everport.frontend.onnx.functions import expand_function, find_function
from everport.frontend.onnx.model import read_model, tensor_array
from everport.frontend.onnx.shape_values import EVALUATORS, MAX_ELEMENTS, objects
from everport.frontend.onnx.table import find_converter
from everport.ir.dtype import DType, boolean, dtype, from_numpy, i64
from everport.ir.errors import CompileError, UnsupportedError
from everport.ir.module import IRModule
from everport.ir.span import Span
from everport.relax.builder import Builder, infer_call
from everport.relax.expr import Constant, RelaxExpr, constant, make_attrs
from everport.relax.op import OPS
from everport.relax.struct_info import TensorInfo
from everport.tir.expr import Expr, as_int, free_vars

FOLD_LIMIT = 4096  # elements: calls on constants up to this size are evaluated at once


def import_onnx(
    source: str | Path | onnx.ModelProto,
    dims: Mapping[str, Any] | None = None,
    *,
    name: str = "main",
) -> IRModule:
    """The model as a Relax module with one function.

    `dims` fixes or bounds dynamic dimensions by name: N, (LO, HI), "LO..HI", "%N==0". Raises UnsupportedError that lists every
    node that cannot be imported, and CompileError for a broken model.
    """
    model, folder, label = read_model(source)
    specs = {key: DimSpec.of(value) for key, value in (dims or {}).items()}
    importer = GraphImporter(model, folder, label, DimTable(specs))
    return IRModule({name: importer.run(name)})


class GraphImporter:
    """The state of one import: the builder, values by ONNX name, known shape values, and the failures met so far."""

    def __init__(self, model: onnx.ModelProto, folder: Path | None, label: str, dims: DimTable) -> None:
        self.model = model
        self.folder = folder
        self.label = label
        self.dims = dims
        self.builder = Builder()
        self.opsets = {o.domain if o.domain != "ai.onnx" else "": o.version for o in model.opset_import}
        self.values: dict[str, RelaxExpr | None] = {"": None}
        self.known: dict[RelaxExpr, np.ndarray] = {}
        self.poisoned: set[str] = set()
        self.failures: list[tuple[str, str, str]] = []  # operator, node, reason
        self.functions = {(f.domain, f.name): f for f in model.functions}

    def run(self, name: str) -> Any:
        """Imports the main graph."""
        graph = self.model.graph
        self._initializers(graph)
        for value in graph.input:
            if value.name not in self.values:
                self._parameter(value)
        self.dims.check_all_used()
        self.import_nodes(graph.node)
        self._report()
        results = [self.output(o.name) for o in graph.output]
        if not results:
            raise CompileError(f"{self.label}: the graph has no outputs")
        self.builder.name = name
        return self.builder.finish(
            results,
            [o.name for o in graph.output],
            input_names=tuple(v.name for v in graph.input if self._is_input(v.name)),
            symbol_names=tuple(self.dims.names.items()) or None,
        )

    def _is_input(self, name: str) -> bool:
        return name in self._input_names

    def _initializers(self, graph: onnx.GraphProto) -> None:
        self._input_names: set[str] = set()
        for tensor in graph.initializer:
            self.values[tensor.name] = self._named_constant(tensor_array(tensor, self.folder, self.label), tensor.name)
        for sparse in graph.sparse_initializer:
            self._fail("SparseTensor", sparse.values.name, "sparse initializers are not supported")
            self.poisoned.add(sparse.values.name)

    def _named_constant(self, array: np.ndarray, name: str) -> Constant:
        try:
            from_numpy(array.dtype)
        except KeyError as error:
            raise UnsupportedError(f"{self.label}: tensor {name!r}: {error.args[0]}") from None
        return constant(array, name)

    def _parameter(self, value: onnx.ValueInfoProto) -> None:
        kind = value.type.WhichOneof("value")
        if kind != "tensor_type":
            self._fail("input", value.name, f"inputs of kind {(kind or 'unknown').removesuffix('_type')} are not supported")
            self.poisoned.add(value.name)
            return
        tensor = value.type.tensor_type
        if tensor.elem_type == TensorProto.STRING:
            self._fail("input", value.name, "string inputs are not supported")
            self.poisoned.add(value.name)
            return
        try:
            element = from_numpy(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        except KeyError:
            known = TensorProto.DataType.values()
            name = TensorProto.DataType.Name(tensor.elem_type) if tensor.elem_type in known else str(tensor.elem_type)
            self._fail("input", value.name, f"the element type {name} is not supported")
            self.poisoned.add(value.name)
            return
        if not tensor.HasField("shape"):
            self._fail("input", value.name, "the rank of the input is not declared")
            self.poisoned.add(value.name)
            return
        shape = tuple(self.dims.dimension(d, value.name, k) for k, d in enumerate(tensor.shape.dim))
        for symbol, spec in self.dims.ranges.items():
            if symbol in shape:
                self.builder.bind_symbol(symbol, spec.lo, spec.hi, spec.divisor)
        self._input_names.add(value.name)
        self.values[value.name] = self.builder.param(value.name, TensorInfo(shape, element))

    def import_nodes(self, nodes: Sequence[onnx.NodeProto]) -> None:
        """Imports nodes in dependency order; failures are collected."""
        for index, node in self._sorted(nodes):
            if any(i in self.poisoned for i in node.input):
                self.poisoned.update(o for o in node.output if o)
                self._check_known(node, index)
                continue
            try:
                self._node(node, index)
            except UnsupportedError as error:
                self._fail(node.op_type, self._node_name(node, index), error.message)
                self.poisoned.update(o for o in node.output if o)
            except CompileError as error:
                if error.span is None:
                    error.span = self._span(node, index)
                raise

    def _sorted(self, nodes: Sequence[onnx.NodeProto]) -> list[tuple[int, onnx.NodeProto]]:
        """Nodes in an order in which inputs come first; already sorted graphs keep theirs."""
        makers = {o: k for k, n in enumerate(nodes) for o in n.output if o}
        waiting = [0] * len(nodes)
        users: list[list[int]] = [[] for _ in nodes]
        for k, node in enumerate(nodes):
            for maker in {makers[i] for i in _inputs_of(node) if i in makers and makers[i] != k}:
                waiting[k] += 1
                users[maker].append(k)
        if all(makers.get(i, -1) < k for k, n in enumerate(nodes) for i in _inputs_of(n)):
            return list(enumerate(nodes))
        ready = [k for k in range(len(nodes)) if not waiting[k]]
        order: list[tuple[int, onnx.NodeProto]] = []
        while ready:
            k = ready.pop(0)
            order.append((k, nodes[k]))
            for user in users[k]:
                waiting[user] -= 1
                if not waiting[user]:
                    ready.append(user)
        if len(order) != len(nodes):
            stuck = next(nodes[k] for k in range(len(nodes)) if waiting[k])
            raise CompileError(f"{self.label}: the graph has a cycle through node {stuck.name!r} ({stuck.op_type})")
        return order

    def _node(self, node: onnx.NodeProto, index: int) -> None:
        span = self._span(node, index)
        domain = "" if node.domain == "ai.onnx" else node.domain
        for name in node.input:
            if name not in self.values:
                raise CompileError(f"{self.label}: input {name!r} is made by no node, input or initializer", span=span)
        inputs = [self.values[i] for i in node.input]
        attrs = {a.name: self._attribute(a) for a in node.attribute}
        opset = self.opsets.get(domain)
        self._check_attributes(node, domain, opset or 1, span)
        if opset is None and (domain, node.op_type) not in self.functions:
            raise CompileError(f"{self.label}: the model imports no operator set for domain {domain!r}", span=span)
        if domain == "" and self._symbolic(node, inputs, attrs, opset or 1):
            return
        if domain == "" and node.op_type == "If" and self._constant_if(inputs, attrs, node):
            return
        with self.builder.at(span):
            converter = find_converter(domain, node.op_type, opset or 1)
            if converter is not None:
                ctx = NodeContext(self, node, inputs, attrs, opset or 1, span)
                result = converter(ctx)
                outputs = list(result) if isinstance(result, (tuple, list)) else [result]
            else:
                function = find_function(node, domain, opset or 1, inputs, self.functions)
                if function is None:
                    raise UnsupportedError(self._missing(domain, node.op_type, opset), span=span)
                outputs = expand_function(self, function, node, inputs, span)
        for position, name in enumerate(node.output):
            if not name:
                continue
            if position >= len(outputs) or outputs[position] is None:
                raise UnsupportedError(f"output {position} ({name!r}) is not provided", span=span)
            self.values[name] = outputs[position]

    def _check_attributes(self, node: onnx.NodeProto, domain: str, opset: int, span: Span) -> None:
        """A CompileError where an attribute that the standard requires is missing, or one is not of the type it requires."""
        if (domain, node.op_type) in self.functions or not onnx.defs.has(node.op_type, opset, domain):
            return
        given = {a.name: a for a in node.attribute}
        for name, attribute in onnx.defs.get_schema(node.op_type, opset, domain).attributes.items():
            if name not in given:
                if attribute.required:
                    raise CompileError(f"the attribute {name!r} is missing", span=span)
            elif given[name].type != attribute.type.value:
                types = AttributeProto.AttributeType
                wanted, found = types.Name(attribute.type.value), types.Name(given[name].type)
                raise CompileError(f"the attribute {name!r} must be of type {wanted}, not {found}", span=span)

    def _missing(self, domain: str, op: str, opset: int | None) -> str:
        where = f"domain {domain!r}" if domain else f"opset {opset}"
        return f"there is no converter for {op} in {where}"

    def _check_known(self, node: onnx.NodeProto, index: int) -> None:
        """Reports an unknown operator even where its inputs could not be imported, so that one error lists all."""
        domain = "" if node.domain == "ai.onnx" else node.domain
        opset = self.opsets.get(domain, 1)
        if find_converter(domain, node.op_type, opset) is None and (domain, node.op_type) not in self.functions:
            if domain or not (onnx.defs.has(node.op_type) and onnx.defs.get_schema(node.op_type).has_function):
                self._fail(node.op_type, self._node_name(node, index), self._missing(domain, node.op_type, opset))

    def _symbolic(
        self, node: onnx.NodeProto, inputs: list[RelaxExpr | None], attrs: dict[str, Any], opset: int
    ) -> bool:
        """Evaluates shape arithmetic on known values; True if the node was dealt with."""
        op = node.op_type
        if op in ("Shape", "Size"):
            value = inputs[0]
            assert value is not None and isinstance(value.info, TensorInfo)
            shape = list(value.info.shape)
            if op == "Shape":
                found = objects(shape[slice(attrs.get("start", 0), attrs.get("end"))])
            else:
                found = objects([self.builder.ctx.simplify(value.info.numel())], ())
            self.values[node.output[0]] = self._known_tensor(found, i64)
            return True
        if op not in EVALUATORS or not inputs or all(i is None or isinstance(i, Constant) for i in inputs):
            return False
        if not any(i in self.known for i in inputs if i is not None):
            return False
        contents = [None if i is None else self.known_ints(i) for i in inputs]
        if any(c is None and i is not None for c, i in zip(contents, inputs, strict=True)):
            return False
        found_or_none = EVALUATORS[op](attrs, opset, contents)
        if found_or_none is None or found_or_none.size > MAX_ELEMENTS:
            return False
        found = found_or_none
        for k, v in enumerate(found.flat):
            if isinstance(v, Expr):
                simple = self.builder.ctx.simplify(v)
                found.flat[k] = simple if as_int(simple) is None else as_int(simple)
        element = self._symbolic_dtype(op, inputs, attrs)
        if any(isinstance(v, Expr) for v in found.flat) and not element.is_int:
            return False
        self.values[node.output[0]] = self._known_tensor(found, element)
        return True

    def _symbolic_dtype(self, op: str, inputs: list[RelaxExpr | None], attrs: dict[str, Any]) -> DType:
        if op == "Equal":
            return boolean
        if op == "Cast":
            return from_numpy(onnx.helper.tensor_dtype_to_np_dtype(attrs["to"]))
        if op == "ConstantOfShape":
            return from_numpy(attrs["value"].dtype)
        source = inputs[1] if op == "Where" else inputs[0]
        assert source is not None and isinstance(source.info, TensorInfo)
        return source.info.dtype

    def _known_tensor(self, contents: np.ndarray, element: DType) -> RelaxExpr:
        if not any(isinstance(v, Expr) for v in contents.flat):
            return constant(np.array(contents.tolist(), dtype=element.numpy).reshape(contents.shape))
        var = self.builder.emit(
            "shape_tensor", values=tuple(contents.flat), dims=tuple(contents.shape), dtype=element.name, name="shape"
        )
        self.known[var] = contents
        return var

    def known_ints(self, value: RelaxExpr) -> np.ndarray | None:
        """The contents of an integer tensor as ints and expressions, if known and small."""
        if isinstance(value, Constant):
            if value.data.size > MAX_ELEMENTS or value.data.dtype.kind not in "iub":
                return None
            return objects(value.data)
        info = value.info
        if isinstance(info, TensorInfo) and info.dtype.is_int and info.static_shape() == (0,):
            return np.empty(0, dtype=object)  # no elements: nothing is left to know
        return self.known.get(value)

    def _constant_if(self, inputs: list[RelaxExpr | None], attrs: dict[str, Any], node: onnx.NodeProto) -> bool:
        """Imports the branch that a constant condition chooses in place of the If."""
        cond = inputs[0]
        if not isinstance(cond, Constant):
            return False
        branch = attrs["then_branch"] if bool(cond.data.reshape(-1)[0]) else attrs["else_branch"]
        results = self.import_subgraph(branch)
        for name, value in zip(node.output, results, strict=True):
            if value is None:
                self.poisoned.add(name)
            self.values[name] = value
        return True

    def import_subgraph(self, graph: onnx.GraphProto) -> list[RelaxExpr | None]:
        """The outputs of a graph imported in place; it sees the names around it, and its own names stay inside."""
        values, poisoned = dict(self.values), set(self.poisoned)
        for tensor in graph.initializer:
            self.values[tensor.name] = self._named_constant(tensor_array(tensor, self.folder, self.label), tensor.name)
        self.import_nodes(graph.node)
        results = [None if o.name in self.poisoned else self.output(o.name) for o in graph.output]
        self.values, self.poisoned = values, poisoned
        return results

    def output(self, name: str) -> RelaxExpr:
        """The value of a graph output."""
        if self.values.get(name) is None:
            raise CompileError(f"{self.label}: the output {name!r} is made by no node, input or initializer")
        value = self.values[name]
        assert value is not None
        return value

    def emit(self, op: str, args: Sequence[RelaxExpr], attrs: Mapping[str, Any], span: Span | None) -> RelaxExpr:
        """An operator call; folded at once if its arguments are small constants."""
        folded = self._fold(op, args, attrs, span)
        if folded is not None:
            return folded[0]
        return self.builder.emit(op, *args, **attrs)

    def emit_many(
        self, op: str, args: Sequence[RelaxExpr], attrs: Mapping[str, Any], span: Span | None
    ) -> tuple[RelaxExpr, ...]:
        """An operator call with several results."""
        folded = self._fold(op, args, attrs, span)
        return folded if folded is not None else self.builder.emit_many(op, *args, **attrs)

    def _fold(
        self, op: str, args: Sequence[RelaxExpr], attrs: Mapping[str, Any], span: Span | None
    ) -> tuple[RelaxExpr, ...] | None:
        if not args or not all(isinstance(a, Constant) for a in args):
            return None
        frozen = make_attrs(attrs)
        info = infer_call(self.builder.ctx, op, args, frozen, span)
        if not isinstance(info, TensorInfo) or (OPS[op].decompose is not None and OPS[op].lower is None):
            return None
        shape = info.static_shape()
        if shape is None or free_vars(_exprs(frozen)) or int(np.prod(shape)) > FOLD_LIMIT or sum(a.data.size for a in args) > FOLD_LIMIT:  # type: ignore[attr-defined]
            return None
        values = {k: _concrete(v) for k, v in frozen}
        with np.errstate(all="ignore"):
            result = OPS[op].numpy(
                {**values, "out_shape": shape, "out_dtype": info.dtype.numpy}, *(a.data for a in args)  # type: ignore[attr-defined]
            )
        return (constant(np.asarray(result)),)

    def constant(self, value: Any, element: Any = None) -> Constant:
        """A constant; `element` is a DType, its name, or a numpy dtype."""
        if isinstance(element, (DType, str)):
            element = dtype(element).numpy
        return constant(np.asarray(value, dtype=element))

    def _attribute(self, attribute: AttributeProto) -> Any:
        match attribute.type:
            case AttributeProto.TENSOR:
                if attribute.t.data_type == TensorProto.STRING:
                    return attribute.t
                return tensor_array(attribute.t, self.folder, self.label)
            case AttributeProto.STRING:
                return attribute.s.decode("utf-8", "replace")
            case AttributeProto.STRINGS:
                return [s.decode("utf-8", "replace") for s in attribute.strings]
            case AttributeProto.INTS | AttributeProto.FLOATS:
                return list(onnx.helper.get_attribute_value(attribute))
            case _:
                return onnx.helper.get_attribute_value(attribute)

    def _span(self, node: onnx.NodeProto, index: int) -> Span:
        return Span(self.label, node=node.name or (node.output[0] if node.output else ""), op=node.op_type, index=index)

    def _node_name(self, node: onnx.NodeProto, index: int) -> str:
        return node.name or f"#{index}"

    def _fail(self, op: str, node: str, reason: str) -> None:
        self.failures.append((op, node, reason))

    def _report(self) -> None:
        """One error for all that could not be imported: operator, reason, count, and the first nodes by name."""
        if not self.failures:
            return
        groups: dict[tuple[str, str], list[str]] = {}
        for op, node, reason in self.failures:
            groups.setdefault((op, reason), []).append(node)
        lines = []
        for (op, reason), nodes in groups.items():
            shown = ", ".join(repr(n) for n in nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
            lines.append(f"{op} x {len(nodes)}: {reason} ({shown})")
        count = Counter(op for op, _, _ in self.failures)
        raise UnsupportedError(
            f"{self.label}: {len(self.failures)} node(s) of {len(count)} kind(s) cannot be imported",
            notes=lines,
            hint="`everport ops` lists what is supported",
        )


def _inputs_of(node: onnx.NodeProto) -> Iterable[str]:
    """Names a node needs: its inputs, and what its subgraphs take from around them."""
    yield from node.input
    for attribute in node.attribute:
        graphs = [attribute.g] if attribute.type == AttributeProto.GRAPH else list(attribute.graphs)
        for graph in graphs:
            own = {t.name for t in graph.initializer} | {v.name for v in graph.input}
            own |= {o for n in graph.node for o in n.output}
            yield from (i for n in graph.node for i in _inputs_of(n) if i not in own)
            yield from (o.name for o in graph.output if o.name not in own)


def _exprs(value: Any) -> list[Expr]:
    """The expressions anywhere in an attribute value."""
    if isinstance(value, Expr):
        return [value]
    return [e for v in value for e in _exprs(v)] if isinstance(value, tuple) else []


def _concrete(value: Any) -> Any:
    if isinstance(value, Expr):
        number = as_int(value)
        if number is None:
            raise CompileError(f"a call on constants has the symbolic attribute {value}")
        return number
    return tuple(_concrete(v) for v in value) if isinstance(value, tuple) else value
