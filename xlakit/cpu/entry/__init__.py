"""A module as one native function: which kernels run in which order, on which memory."""
