"""Graph passes keep the meaning; modules print, parse and verify after each; memory plans are sound."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper
from support.models import model, perceptron

from everport.driver import Compilation
from everport.frontend.onnx import import_onnx
from everport.ir.errors import CompileError, UnsupportedError, VerifyError
from everport.ir.module import IRModule
from everport.ir.node import structural_equal
from everport.ir.passes import PassRunner
from everport.relax.expr import Binding, CallTIR, Function
from everport.relax.interp import evaluate
from everport.relax.parse import parse
from everport.relax.passes import graph_pipeline
from everport.relax.print import constants_of, script
from everport.relax.verify import verify_module
from everport.targets import parse_target
from everport.tir.interp import evaluate as evaluate_int


def random_graph(seed: int) -> onnx.ModelProto:
    """A chain and tree of elementwise operators, reductions, matmuls, transposes, softmax and concat on (n, 6) tensors."""
    source = np.random.default_rng(seed)
    weights = {"w": source.standard_normal((6, 6)).astype(np.float32), "c": source.standard_normal((1, 6)).astype(np.float32)}
    nodes, names = [], ["x"]
    for k in range(int(source.integers(3, 14))):
        a, b = (names[int(source.integers(len(names)))] for _ in range(2))
        made = f"v{k}"
        match int(source.integers(9)):
            case 0:
                nodes.append(helper.make_node("Add", [a, b], [made]))
            case 1:
                nodes.append(helper.make_node("Mul", [a, "c"], [made]))
            case 2:
                nodes.append(helper.make_node("Tanh", [a], [made]))
            case 3:
                nodes.append(helper.make_node("MatMul", [a, "w"], [made]))
            case 4:
                nodes.append(helper.make_node("Softmax", [a], [made]))
            case 5:
                nodes.append(helper.make_node("ReduceMean", [a], [f"{made}m"], axes=[1], keepdims=1))
                nodes.append(helper.make_node("Sub", [a, f"{made}m"], [made]))
            case 6:
                nodes.append(helper.make_node("Transpose", [a], [f"{made}t"], perm=[1, 0]))
                nodes.append(helper.make_node("Transpose", [f"{made}t"], [made], perm=[1, 0]))
            case 7:
                nodes.append(helper.make_node("Concat", [a, b], [f"{made}c"], axis=1))
                nodes.append(helper.make_node("Split", [f"{made}c"], [f"{made}s", made], axis=1))
            case 8:
                nodes.append(helper.make_node("Relu", [a], [made]))
        names.append(made)
    outputs = [names[-1], names[int(source.integers(1, len(names)))]]
    return model(nodes, {"x": ["n", 6]}, list(dict.fromkeys(outputs)), weights)


@pytest.mark.parametrize("seed", range(25))
def test_passes_keep_the_meaning(seed: int) -> None:
    module = import_onnx(random_graph(seed))
    x = {"x": np.random.default_rng(seed).standard_normal((5, 6)).astype(np.float32)}
    expected = evaluate(module, x)

    def check(m: IRModule) -> None:
        verify_module(m)
        again = parse(script(m), constants_of(m))
        assert all(structural_equal(m[n], again[n]) for n in m)

    result = PassRunner(verify=check).run(module, graph_pipeline())
    for name, array in evaluate(result, x).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", range(25))
def test_plans_do_not_overlap(seed: int) -> None:
    """No two places that live at the same time share a byte, at several sizes."""
    job = Compilation(random_graph(seed), parse_target("cpu:x86-64-v3"))
    module = job.lowered()
    verify_module(module)
    f: Function = module["main"]
    arena, places = f.attr("plan")
    symbols = [s for s, *_ in f.attr("dim_ranges")]
    lives: dict[str, list[int]] = {}
    for k, b in enumerate(f.bindings):
        if isinstance(b, Binding) and isinstance(b.value, CallTIR):
            for name in (b.var.name, *(p for p, _, _ in places if p.startswith(f"{b.var.name}#"))):
                lives[name] = [k, k]
    by_var = {b.var: b.var.name for b in f.bindings}
    for k, b in enumerate(f.bindings):
        for a in getattr(b.value, "args", ()):
            if by_var.get(a) in lives:
                lives[by_var[a]][1] = k
    for size in (1, 7, 300):
        values = dict.fromkeys(symbols, size)
        spans = [(n, evaluate_int(o, values), evaluate_int(s, values)) for n, o, s in places]
        for i, (a, start, length) in enumerate(spans):
            assert start % 64 == 0 and start + length <= evaluate_int(arena, values)
            for c, other, extent in spans[:i]:
                together = lives[a][0] <= lives[c][1] and lives[c][0] <= lives[a][1]
                assert not together or start >= other + extent or other >= start + length, (a, c)


def test_equal_layers_share_kernels() -> None:
    source = np.random.default_rng(0)
    nodes, weights, name = [], {}, "x"
    for k in range(12):
        weights[f"w{k}"] = source.standard_normal((8, 8)).astype(np.float32)
        nodes += [helper.make_node("MatMul", [name, f"w{k}"], [f"m{k}"]), helper.make_node("Relu", [f"m{k}"], [f"r{k}"])]
        name = f"r{k}"
    job = Compilation(model(nodes, {"x": ["n", 8]}, [name], weights), parse_target("cpu:x86-64-v3"))
    program, _ = job.program()
    assert len(program.launches) == 12 and len(program.kernels) == 1


def test_a_deep_graph_takes_linear_time() -> None:
    nodes = [helper.make_node("Tanh", [f"v{k}"], [f"v{k + 1}"]) for k in range(3000)]
    module = import_onnx(model(nodes, {"v0": [4]}, ["v3000"]))
    result = PassRunner().run(module, graph_pipeline())
    assert sum(isinstance(b.value, CallTIR) for b in result["main"].bindings) >= 3000 // 24


def test_shape_arithmetic_leaves_no_kernels() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axis"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["t"], axis=0),
        helper.make_node("Reshape", ["x", "t"], ["y"]),
    ]
    weights = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([2, 3])}
    job = Compilation(model(nodes, {"x": ["n", 6]}, ["y"], weights), parse_target("cpu:x86-64-v3"))
    program, _ = job.program()
    assert not program.launches
    assert job.program()[0].outputs[0].shape == ("n", 2, 3)


def test_verifier_refuses_wrong_info() -> None:
    module = import_onnx(perceptron())
    f = module["main"]
    broken = f.with_fields(bindings=f.bindings[1:])
    with pytest.raises(VerifyError, match="used before it is bound"):
        verify_module(IRModule({"main": broken}))


def test_symbols_that_must_agree_are_checked_at_run_time() -> None:
    job = Compilation(model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": ["n", 2], "b": ["m", 2]}, ["y"]), parse_target("cpu"))
    program, _ = job.program()
    assert any(type(i).__name__ == "Check" and "must be equal" in i.message for i in program.instructions)
    with pytest.raises(CompileError, match="differ"):
        import_onnx(model([helper.make_node("Add", ["a", "b"], ["y"])], {"a": [3, 2], "b": [4, 2]}, ["y"]))


def test_all_unsupported_nodes_in_one_error() -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["a"]), helper.make_node("Frobnicate", ["a"], ["b"], name="odd")]
    with pytest.raises(UnsupportedError) as caught:
        import_onnx(model(nodes, {"x": [2]}, ["b"]))
    assert "Frobnicate" in str(caught.value) and "NonZero" in str(caught.value)
