"""The schedule of instructions, and rematerialization."""
