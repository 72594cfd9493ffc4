"""HLO text as jaxlib prints what XLA's builder has made: layouts, numbers of names, and the text itself."""
