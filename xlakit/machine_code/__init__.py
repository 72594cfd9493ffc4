"""Machine code that is laid out before it is needed: an image, which a process maps without LLVM.

``elf.py`` lays out object files, where they are compiled; ``image.py`` is the format, and maps it. A process whose
programs are all in the compile cache thus loads no more of LLVM than its version. What cannot be laid out so (other
systems, other instruction sets, relocations that are not known here) stays an object file, for LLVM's linker.
"""
