"""The command line, and what its commands are made of."""
