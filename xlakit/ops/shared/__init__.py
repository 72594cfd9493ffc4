"""What several pages need: rules and arithmetic that belong to no one operation."""
