"""Relax: the graph IR. Typed dataflow with symbolic shapes; tensor operators above, calls of PrimFuncs below."""
