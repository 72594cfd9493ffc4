"""The base of all passes: the pass classes, the rewriter with its rules, and the builders of computations."""
