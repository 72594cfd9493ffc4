"""Interfaces that other packages had, on xlakit: code that was written for them runs with another import."""
