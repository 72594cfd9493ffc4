"""A language server for HLO text: ``xlakit lsp``."""
