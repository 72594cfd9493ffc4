"""The compiler's back end: HLO to machine code through LLVM.

``entry/`` lowers a module to kernels on buffers and puts them into one native function; ``kernels/`` chooses the kernel
of each instruction, and has those that are not loop nests; ``loops/`` turns a fusion into loop nests; ``scalars/`` and
``math/`` say what happens to one element; ``llvm/`` is the typed layer that all of it is written with; ``runtime/``
runs it.
"""
