"""Sorts and TopK."""
