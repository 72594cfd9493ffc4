"""Collectives in machine code: who meets where, and the kernels that compute for all members of a group at once."""
