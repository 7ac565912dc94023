"""Weights of cubic interpolation (Keys 1981) with the parameter `a`, for arrays and TIR expressions alike."""

from __future__ import annotations

from typing import Any


def near_weight(d: Any, a: float) -> Any:
    """The weight of an element at the distance d, 0 <= d <= 1."""
    return ((d * (a + 2) - (a + 3)) * d) * d + 1.0


def far_weight(d: Any, a: float) -> Any:
    """The weight of an element at the distance d, 1 <= d <= 2."""
    return ((d * a - 5 * a) * d + 8 * a) * d - 4 * a


def window_weights(t: Any, a: float) -> tuple[Any, Any, Any, Any]:
    """The weights of the elements at -1, 0, 1 and 2 from the floor of a position, `t` being its fraction."""
    return far_weight(t + 1.0, a), near_weight(t, a), near_weight(1.0 - t, a), far_weight(2.0 - t, a)
