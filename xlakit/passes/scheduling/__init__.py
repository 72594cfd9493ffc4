"""Scheduling: combines collectives, overlaps them with work, and rematerializes values to lower the memory peak."""
