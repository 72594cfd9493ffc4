"""Random bits and random numbers."""
