"""CPU code: device TIR to LLVM text, objects, and one shared library."""
