"""LLVM text to objects and assembly, through llvmlite."""

from __future__ import annotations

import functools

import llvmlite
import llvmlite.binding as llvm

from everport.ir.errors import CompileError
from everport.targets import Target

LLVM_VERSION = ".".join(map(str, llvm.llvm_version_info))
BACKEND = f"llvmlite {llvmlite.__version__}, LLVM {LLVM_VERSION}"


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _machine(target: Target, opt: int) -> llvm.TargetMachine:
    _initialize()
    triple = llvm.Target.from_triple(target.level.triple)
    return triple.create_target_machine(cpu=target.level.llvm_cpu, opt=max(1, opt), reloc="pic", codemodel="small")


def _optimized(text: str, target: Target, opt: int) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    machine = _machine(target, opt)
    header = f'target triple = "{target.level.triple}"\n'
    try:
        module = llvm.parse_assembly(header + text)
        module.verify()
    except RuntimeError as error:
        raise CompileError(
            f"the generated LLVM text is not valid: {str(error).strip()}",
            hint="this is a defect of the code generator; please report it with the model",
        ) from None
    module.data_layout = str(machine.target_data)
    options = llvm.create_pipeline_tuning_options(speed_level=min(2, opt))
    options.loop_vectorization = opt >= 2
    options.slp_vectorization = False
    options.loop_unrolling = opt >= 2
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def compile_object(text: str, target: Target, opt: int = 2) -> bytes:
    """An object file (position independent). `opt` 0 to 3."""
    module, machine = _optimized(text, target, opt)
    return machine.emit_object(module)


def assembly(text: str, target: Target, opt: int = 2) -> str:
    """Assembly text, for people."""
    module, machine = _optimized(text, target, opt)
    return machine.emit_assembly(module)


def optimized_text(text: str, target: Target, opt: int = 2) -> str:
    """The LLVM text after optimisation."""
    return str(_optimized(text, target, opt)[0])
