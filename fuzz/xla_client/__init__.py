"""``python -m fuzz.xla_client``: ``xlakit.compat.xla_client`` and jaxlib 0.6.0, whose module it is."""
