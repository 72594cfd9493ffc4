"""Interfaces of other packages, implemented on xlakit: code written for them runs with a changed import."""
