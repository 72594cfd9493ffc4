"""Commands that test the package against what stands outside it: jaxlib's results, and damaged input."""
