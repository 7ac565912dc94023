"""Counts of n-grams, from the model file to compiled results, against counting them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.models import run_compiled

from everport.ir.errors import UnsupportedError

# 1-grams 2, 3, 5; 2-grams (2, 3), (3, 3), (5, 2); the 3-gram (2, 3, 2). Columns out of order, one shared by two n-grams.
POOL = {"pool_int64s": [2, 3, 5, 2, 3, 3, 3, 5, 2, 2, 3, 2], "ngram_counts": [0, 3, 9], "ngram_indexes": [4, 0, 1, 2, 6, 3, 2]}
GRAMS = [(2,), (3,), (5,), (2, 3), (3, 3), (5, 2), (2, 3, 2)]
WEIGHTS = [0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5]


def ran(x: np.ndarray, folder: Path, **attributes: Any) -> np.ndarray:
    node = helper.make_node("TfIdfVectorizer", ["x"], ["y"], **{**POOL, **attributes})
    shape = [f"d{k}" for k in range(x.ndim)]
    graph = helper.make_graph(
        [node],
        "text",
        [helper.make_tensor_value_info("x", helper.np_dtype_to_tensor_dtype(x.dtype), shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    return run_compiled(model, {"x": x}, folder)["y"]


def counted(row: list[int], lengths: range, skips: int) -> np.ndarray:
    seen: Counter[tuple[int, ...]] = Counter()
    for n in lengths:
        for stride in range(1, 2 if n == 1 else skips + 2):
            last = len(row) - (n - 1) * stride
            seen.update(tuple(row[p + j * stride] for j in range(n)) for p in range(max(last, 0)))
    y = np.zeros(7, np.float32)
    for gram, column in zip(GRAMS, POOL["ngram_indexes"], strict=True):
        y[column] += seen[gram]
    return y


@pytest.mark.parametrize("length", [1, 2, 12])
@pytest.mark.parametrize("skips", [0, 2])
@pytest.mark.parametrize("lengths", [range(1, 4), range(2, 3)])
def test_counts(length: int, skips: int, lengths: range, tmp_path: Path) -> None:
    x = np.random.default_rng(length).choice([2, 3, 5, 7], (4, length)).astype(np.int32)
    how = {"min_gram_length": lengths[0], "max_gram_length": lengths[-1], "max_skip_count": skips}
    expected = np.stack([counted(row, lengths, skips) for row in x.tolist()])
    np.testing.assert_array_equal(ran(x, tmp_path, mode="TF", **how), expected)
    np.testing.assert_array_equal(ran(x[0], tmp_path, mode="TF", **how), expected[0])
    weighted = np.asarray(WEIGHTS, np.float32)
    np.testing.assert_array_equal(ran(x, tmp_path, mode="TFIDF", weights=WEIGHTS, **how), expected * weighted)
    np.testing.assert_array_equal(ran(x, tmp_path, mode="IDF", weights=WEIGHTS, **how), np.minimum(expected, 1) * weighted)


def test_a_pool_that_does_not_divide_is_refused(tmp_path: Path) -> None:
    how = {"min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0, "mode": "TF"}
    with pytest.raises(UnsupportedError) as error:
        ran(np.zeros((1, 3), np.int64), tmp_path, ngram_counts=[0, 3, 8], **how)
    assert any("whole 2-grams" in note for note in error.value.notes)
