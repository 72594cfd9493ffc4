"""The order of instructions, and what is computed again to save memory."""
