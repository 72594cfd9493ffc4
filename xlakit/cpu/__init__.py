"""The compiler's back end: HLO to machine code through LLVM.

``entry/`` lowers a module to kernels on buffers and writes the native function that calls them; ``kernels/`` chooses
the kernel of each instruction, and has the kernels that are not loop nests; ``loops/`` turns a fusion into loop nests;
``scalars/`` and ``math/`` compute the operations on one element; ``llvm/`` is the typed layer through which all of them
write LLVM IR; ``runtime/`` executes the program.
"""
