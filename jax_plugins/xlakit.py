"""What JAX finds where xlakit is on PYTHONPATH and not installed; an installed xlakit has an entry point."""

from xlakit.jax import initialize

__all__ = ["initialize"]
