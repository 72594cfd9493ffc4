"""Clients, devices, arrays and executables, on xlakit's runtime."""
