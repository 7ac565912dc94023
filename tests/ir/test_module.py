"""IRModule: immutable, keeps order and identity, names what is missing."""

from __future__ import annotations

import pytest

from everport.ir.dtype import f32
from everport.ir.module import IRModule, modules_equal
from everport.tir.buffer import Buffer
from everport.tir.expr import Const, Var
from everport.tir.func import PrimFunc
from everport.tir.stmt import Block, For, Store


def func(name: str, value: float = 0.0, loop: str = "i") -> PrimFunc:
    """A function that fills its output."""
    n, i = Var("n"), Var(loop)
    out = Buffer("out", (n,), f32)
    body = Block("root", (), (), (), (), For(i, n, Store(out, (i,), Const(value, f32))))
    return PrimFunc(name, (out, n), body)


def test_order_lookup_and_containment():
    f, g = func("f"), func("g")
    module = IRModule({"g": g, "f": f}, {"source": "m.onnx"})
    assert list(module) == ["g", "f"]
    assert module["f"] is f
    assert "f" in module
    assert "h" not in module
    assert list(module.items()) == [("g", g), ("f", f)]
    assert module.attrs["source"] == "m.onnx"
    with pytest.raises(KeyError, match="no function 'h' in the module; it has: g, f"):
        module["h"]
    with pytest.raises(KeyError, match="it has: none"):
        IRModule({})["h"]


def test_it_cannot_be_changed_from_outside():
    functions = {"f": func("f")}
    module = IRModule(functions)
    functions["g"] = func("g")
    assert list(module) == ["f"]
    with pytest.raises(TypeError):
        module.functions["g"] = func("g")  # type: ignore[index]
    with pytest.raises(TypeError):
        module.attrs["a"] = 1  # type: ignore[index]
    with pytest.raises(AttributeError):
        module.functions = {}  # type: ignore[misc]


def test_changes_make_a_new_module_and_no_change_none():
    f, g, h = func("f"), func("g"), func("h")
    module = IRModule({"f": f, "g": g}, {"k": 1})
    assert module.with_functions({"f": f}) is module
    assert module.with_functions({}) is module
    assert module.with_functions({"absent": None}) is module
    changed = module.with_functions({"f": h, "g": None, "new": g})
    assert list(changed.items()) == [("f", h), ("new", g)]
    assert changed.attrs == {"k": 1}
    assert list(module.items()) == [("f", f), ("g", g)]
    assert module.with_attrs(k=2, l=3).attrs == {"k": 2, "l": 3}
    assert module.attrs == {"k": 1}


def test_functions_by_class():
    f = func("f")
    block = f.root
    assert IRModule({"f": f, "b": block}).of_type(PrimFunc) == {"f": f}


def test_unique_names():
    module = IRModule({"add": func("add"), "add_1": func("add"), "mul_1": func("mul")})
    assert module.unique_name("add") == "add_2"
    assert module.unique_name("mul") == "mul"
    assert module.unique_name("mul_1") == "mul_1_1"


def test_equality_up_to_names_of_variables():
    assert modules_equal(IRModule({"f": func("f", loop="i")}), IRModule({"f": func("other", loop="j")}))
    assert not modules_equal(IRModule({"f": func("f", 1.0)}), IRModule({"f": func("f", 2.0)}))
    assert not modules_equal(IRModule({"f": func("f")}), IRModule({"g": func("f")}))
    assert not modules_equal(IRModule({"f": func("f")}), IRModule({"f": func("f"), "g": func("g")}))
