"""HLO text as jaxlib prints modules of XLA's builder: layouts, numbered names, and the text itself."""
