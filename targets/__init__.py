"""Targets as data: what a device can do and how much of it there is."""

from everport.targets.cpu import CPU_LEVELS, host_level
from everport.targets.target import Target, parse_target

__all__ = ["CPU_LEVELS", "Target", "host_level", "parse_target"]
