"""Collectives in machine code: rendezvous sites, and the kernels that compute for all members of a group at once."""
