"""Arithmetic on shapes and indices: canonical forms, bounds, modular facts, iterator maps, proofs."""

from everport.tir.arith.analyzer import Analyzer
from everport.tir.arith.iter_map import (
    IndexMap,
    IterMapError,
    IterSplit,
    IterSum,
    detect_iter_map,
    inverse_iter_map,
)
from everport.tir.arith.region import eval_region, region_covers, region_union

__all__ = [
    "Analyzer",
    "IndexMap",
    "IterMapError",
    "IterSplit",
    "IterSum",
    "detect_iter_map",
    "eval_region",
    "inverse_iter_map",
    "region_covers",
    "region_union",
]
