"""Tuning: times alternative kernels and settings on the machine, and keeps those that are clearly faster."""
