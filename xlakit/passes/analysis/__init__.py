"""Analyses of HLO: loops and trip counts, costs, traffic of collectives, roundings, the meaning of comparators."""
