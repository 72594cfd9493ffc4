"""The description of PJRT's C interface, through which JAX uses a device: its functions, arguments and numbers.

slots.py      the functions of the table, in the order of its words
arguments.py  for each function the structure that it is called with
numbers.py    the codes of errors and of element types
"""
