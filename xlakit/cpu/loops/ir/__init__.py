"""Loop nests as values: indices, nodes, spaces, and how HLO is traced to them."""
