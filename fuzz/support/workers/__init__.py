"""Processes that commands of fuzz start."""
