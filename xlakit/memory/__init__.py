"""The memory plan of a program, as a value: which values there are, when they live, and which memory each has."""
