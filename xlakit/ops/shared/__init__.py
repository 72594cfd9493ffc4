"""Rules and arithmetic that several pages of operations share."""
