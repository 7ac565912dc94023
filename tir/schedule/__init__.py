"""Schedules: primitives that transform scheduled TIR, and traces of them (TensorIR, Feng et al. 2023, section 3)."""

from everport.tir.schedule.schedule import PRIMITIVES, Schedule
from everport.tir.schedule.tensor_intrin import TENSOR_INTRINS, TensorIntrin
from everport.tir.schedule.trace import Instruction, Trace, parse_trace

__all__ = ["PRIMITIVES", "TENSOR_INTRINS", "Instruction", "Schedule", "TensorIntrin", "Trace", "parse_trace"]
