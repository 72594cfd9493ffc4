"""The base of all passes: the pass classes, the rewriter with its rules, and the builders of computations.

framework.py            the classes of passes, and the context: fuel, names, what is left out
rules.py, rewriter.py   tables of rules, and what applies them; matching.py what rules ask of instructions
hlo_builder.py          the methods that make instructions, which all builders have
computation_builder.py  the builders: of a computation, of a changed copy, and of what replaces one instruction
async_operations.py     the whole operation that a start and its done stand for
deferred.py             passes that are imported when a program needs them

An instruction that several passes make is a method of HloBuilder; what several rules ask is a predicate of matching.py.
"""
