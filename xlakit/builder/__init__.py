"""How a person writes a program: XlaBuilder, XlaComputation; ``edit`` changes one."""

from xlakit.builder.xla_builder import XlaBuilder, XlaComputation

__all__ = ["XlaBuilder", "XlaComputation"]
