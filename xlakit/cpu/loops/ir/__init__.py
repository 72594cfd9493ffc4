"""Loop nests as data: indices, nodes, spaces, and the tracing of HLO to nodes."""
