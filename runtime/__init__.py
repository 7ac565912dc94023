"""The runtime: loads a package and runs it. Needs only numpy and the standard library."""

from .errors import RunError
from .model import Model, load

__version__ = "0.1.0"
__all__ = ["Model", "RunError", "load"]
