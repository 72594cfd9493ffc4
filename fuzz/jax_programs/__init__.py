"""JAX programs made from a seed, on xlakit and on jaxlib's CPU: ``python -m fuzz.jax_programs``.

operations.py  what a program does to arrays
control.py     loops, branches, and JAX's transformations of whole functions
sharded.py     programs over several devices, whose results are to be split alike
layouts.py     the same programs with arguments and results in orders that are drawn
batches.py     the same programs over a batch
training/      steps of training of ordinary networks, whose numbers are not exact
names.py       the names of programs
worker.py      one program after the other, on both platforms of one process
__main__.py    the command, which survives programs that end their process

The numbers are exact: integers of every width, and floats that are small whole numbers, which every operation keeps
so. Sums of them do not depend on their order, and comparisons, sorts and indices have one answer. So results agree bit
by bit or are wrong, however long a program is and whatever it decides by them.
"""
