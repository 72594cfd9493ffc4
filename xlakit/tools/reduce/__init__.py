"""Delta debugging of modules: the smallest module found for which a property still holds.

reducer.py  the steps in their order, and the report
search.py   the best module so far, and how candidates are tried
edits.py    how candidates are made: instructions replaced, shapes inferred anew, dead code removed
steps.py    steps that make the entry smaller; loops.py, applied.py those in loops and in applied computations;
            values.py those that make shapes, types, constants and attributes simpler
extract.py  the part of a program that a person names

A new step is a generator of candidates under ``repeated``, in the file of what it makes smaller, and a line in STEPS.
"""
