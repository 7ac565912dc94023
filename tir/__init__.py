"""TensorIR: the loop IR. Expressions, buffers, statements, blocks, PrimFuncs, and what is done with them."""
