"""The linter: warnings, each with a name, of legal programs that are probably not what was meant."""
