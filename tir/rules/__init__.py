"""Default CPU schedules, written with the public primitives. A rule looks at the shape of a computation, never at its origin."""

from everport.tir.rules.cpu import schedule, schedule_trace

__all__ = ["schedule", "schedule_trace"]
