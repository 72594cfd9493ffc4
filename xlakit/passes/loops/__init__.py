"""While loops: what they carry, compute again and add up, and how often they run."""
