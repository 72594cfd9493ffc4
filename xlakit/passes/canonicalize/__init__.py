"""Canonicalization: inlines calls, expands compound operations, removes layouts and makes conversions explicit."""
