"""The compiler's back end: HLO to machine code through LLVM.

``llvm/`` is the typed layer that code is written with; ``math/`` the elementary functions; ``loops/`` turns a fusion
into loop nests; ``kernels/`` has what is not a loop nest (products, sorting, scattering); ``entry/`` puts the kernels
of a module into one native function over one arena; ``runtime/`` runs it.
"""
