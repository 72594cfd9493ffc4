"""The linter: legal programs that are probably not what was meant, told by warnings that have names."""
