"""Tilings of arrays, teams of partitions, shardings of programs, and the factors of operations."""
