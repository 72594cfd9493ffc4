"""Text tables, which the parts of the package below this one print as well."""

from xlakit.data.text_table import aligned

__all__ = ["aligned"]
