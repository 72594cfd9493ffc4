"""The oracles of ``reduce`` and ``bisect`` (properties of modules), and the processes that evaluate them."""
