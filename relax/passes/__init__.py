"""Graph passes: `PASSES` by name, and the pipeline."""

from everport.ir.passes import Pass
from everport.relax.passes.canonicalize import Canonicalize
from everport.relax.passes.common_subexpressions import CommonSubexpressions
from everport.relax.passes.dead_code import DeadCode
from everport.relax.passes.decompose import Decompose
from everport.relax.passes.fold_constants import FoldConstants
from everport.relax.passes.fuse import FuseOps
from everport.relax.passes.legalize import Legalize
from everport.relax.passes.pack_weights import PackWeights
from everport.relax.passes.plan_memory import PlanMemory

PASSES: dict[str, type[Pass]] = {
    step.name: step
    for step in (
        Canonicalize,
        DeadCode,
        CommonSubexpressions,
        FoldConstants,
        Decompose,
        PackWeights,
        Legalize,
        FuseOps,
        PlanMemory,
    )
}


def graph_pipeline(opt: int = 2) -> list[Pass]:
    """From an imported module to one whose calls are PrimFuncs, ready for scheduling. opt 0 leaves out fusion."""
    steps: list[Pass] = [
        Canonicalize(),
        Decompose(),
        FoldConstants(),
        PackWeights(),
        DeadCode(),
        CommonSubexpressions(),
        Canonicalize(),
        DeadCode(),
        Legalize(),
    ]
    if opt >= 1:
        steps.append(FuseOps())
    return [*steps, DeadCode()]


__all__ = ["PASSES", "graph_pipeline"]
