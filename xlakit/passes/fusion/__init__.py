"""Fusion: chooses the instructions that one kernel computes together."""
