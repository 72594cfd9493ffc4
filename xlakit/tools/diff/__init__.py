"""Differences of two modules, whose instructions are matched by their structure."""
