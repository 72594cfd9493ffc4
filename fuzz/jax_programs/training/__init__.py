"""Steps of training and inferences as ordinary networks have them, compiled and interpreted.

draft.py      what is drawn, and the parameters so far
features.py   blocks on the last dimension: dense layers, norms, gates, dropout, experts
sequences.py  blocks on rows: attention, recurrences, convolutions along them
images.py     blocks on images: convolutions, pooling, other sizes
networks.py   blocks in a row, residual, computed again backward, mapped, or scanned over
losses.py     losses
updates.py    optimizers
steps.py      whole programs: updates, gradients, those of each example, products with second derivatives
__main__.py   the command: ``python -m fuzz.jax_programs.training``

The numbers are those of networks, so that results differ by roundings. What a program computes depends on them no more
than it must: there is no epsilon near zero, and no sign. A result is wrong where it is far from the interpreter's, by
the norm of the whole array, and plain code's is not.
"""
