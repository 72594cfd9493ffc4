"""Machine code in its final layout: an image, which a process maps into memory without LLVM.

``elf.py`` lays out object files when they are compiled; ``image.py`` defines the format, and maps images. So a process
whose programs are all in the compile cache loads nothing of LLVM but its version. Code that cannot be laid out in this
way (for other systems or instruction sets, or with relocations not known here) stays an object file, for LLVM's linker.
"""
