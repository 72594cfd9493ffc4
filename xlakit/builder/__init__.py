"""Building programs from Python calls: XlaBuilder, XlaComputation; ``edit`` changes an existing module."""

from xlakit.builder.xla_builder import XlaBuilder, XlaComputation

__all__ = ["XlaBuilder", "XlaComputation"]
