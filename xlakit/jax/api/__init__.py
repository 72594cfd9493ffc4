"""The interface that JAX drives a device through: which functions it calls, in which order, with which arguments.

slots.py      the functions of the table, in the order of its words
arguments.py  for each function the structure that it is called with
numbers.py    the codes of errors and of element types
"""
