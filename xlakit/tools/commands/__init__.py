"""The verbs of the command line: each file adds the parser of one, and runs it."""
