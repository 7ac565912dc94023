"""The text of each stage of a compilation, for compile --emit and inspect --stage."""

from __future__ import annotations

from everport.driver import Compilation
from everport.ir.errors import CompileError
from everport.ir.module import IRModule
from everport.relax.expr import Function
from everport.relax.print import script as relax_script
from everport.tir.func import PrimFunc
from everport.tir.print import script as tir_script


def module_text(module: IRModule) -> str:
    """All functions of a module."""
    return relax_script(module)


def _kernels(module: IRModule, kernel: str | None) -> dict[str, PrimFunc]:
    found = module.of_type(PrimFunc)
    if kernel is None:
        return found
    if kernel not in found:
        import difflib

        close = difflib.get_close_matches(kernel, found, 1)
        hint = f"did you mean {close[0]!r}?" if close else f"kernels: {', '.join(found)}"
        raise CompileError(f"there is no kernel {kernel!r}", hint=hint)
    return {kernel: found[kernel]}


def stage_text(job: Compilation, stage: str, kernel: str | None = None) -> str:
    """The printed form of a stage; `kernel` picks one kernel."""
    if stage == "relax":
        return relax_script(job.imported())
    if stage == "graph":
        module = job.graph()
        return relax_script(IRModule(module.of_type(Function)))
    if stage in ("tir", "scheduled", "lowered"):
        module = {"tir": job.graph, "scheduled": job.scheduled, "lowered": job.lowered}[stage]()
        return "\n".join(tir_script(f) for f in _kernels(module, kernel).values())
    if stage == "program":
        from everport.runtime.program import script

        return script(job.program()[0])
    from everport.codegen.llvm.build import kernel_symbol
    from everport.codegen.llvm.object import assembly

    parts = []
    for name, func in _kernels(job.lowered(), kernel).items():
        text = kernel_symbol(func)[1]
        parts.append(f"; {name}\n" + (text if stage == "llvm" else assembly(text, job.target, job.opt)))
    return "\n".join(parts)
