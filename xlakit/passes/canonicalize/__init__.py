"""One form for what can be said in many:

calls inlined, operations expanded, layouts and precision as machine code has them.
"""
