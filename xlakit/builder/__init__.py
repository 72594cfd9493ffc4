"""How a person writes a program: XlaBuilder, XlaComputation."""

from xlakit.builder.xla_builder import XlaBuilder, XlaComputation

__all__ = ["XlaBuilder", "XlaComputation"]
