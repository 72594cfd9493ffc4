"""Prefix sums and other scans."""
