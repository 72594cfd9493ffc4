"""Bounded dynamic dimensions: rewrites programs to padded arrays of static shapes and scalars for the sizes.

padding.py        the pass, with calls, loops and branches
padded_values.py  a padded value, and the builder of rules with its arithmetic of sizes
padded_calls.py   what has no rule: a host call on the valid elements

The rules for an operation stand in the file of its kind: elements, movement, regrouping (reshapes), reductions (windows
and sorts, too), indexing, algebra and collectives. A rule raises NoRuleError where padding cannot be told apart.
"""
