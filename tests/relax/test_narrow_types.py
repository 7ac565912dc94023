"""Every type in printed IR: parameters, casts and constants come back, at both levels, and verify."""

from __future__ import annotations

import numpy as np
import pytest

from everport.ir.dtype import DTYPES, DType
from everport.ir.module import IRModule
from everport.ir.node import structural_equal
from everport.relax.builder import Builder
from everport.relax.expr import constant
from everport.relax.interp import evaluate
from everport.relax.parse import parse
from everport.relax.print import constants_of, script
from everport.relax.struct_info import TensorInfo
from everport.relax.verify import verify_module
from everport.tir.build import FuncBuilder
from everport.tir.expr import Const, binary, cast, const
from everport.tir.parse import parse_func as parse_tir
from everport.tir.print import script as tir_script


@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_relax_text(t: DType) -> None:
    b = Builder()
    x = b.param("x", TensorInfo((Const(3),), t))
    values = np.array([1, 0, 1]).astype(t.numpy)
    joined = b.emit("concat", x, constant(values), axis=0)
    module = IRModule({"main": b.finish([joined, b.emit("cast", joined, to="f32")], ["joined", "wide"])})
    verify_module(module)
    again = parse(script(module), constants_of(module))
    assert structural_equal(again["main"], module["main"])
    made = evaluate(again, {"x": values})
    assert made["joined"].dtype == t.numpy
    assert np.array_equal(made["wide"], np.concatenate([values, values]).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("t", DTYPES.values(), ids=str)
def test_tir_text(t: DType) -> None:
    b = FuncBuilder("f")
    x = b.input("x", (4,), t)
    b.output(b.compute("y", (4,), t, lambda i: binary("max", x[i], const(1, t))))
    b.output(b.compute("z", (4,), DTYPES["f64"], lambda i: cast(x[i], DTYPES["f64"])))
    func = b.finish()
    assert structural_equal(parse_tir(tir_script(func)), func)
