"""The checker of memory plans: proves from HLO and the lowered steps alone that every step reads the right values."""
