"""The linter: named warnings about constructs that are legal, but probably not intended."""
