"""Bounded dynamic dimensions: padded arrays with their sizes beside them."""
