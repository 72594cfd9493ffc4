"""Fusion: which instructions one kernel computes."""
