"""Programs of one operation each, made up from a seed: HLO text, arguments, and how exact the result must be.

Each page makes the programs of a few operations. A page knows HLO text only, and nothing of xlakit's own builder,
parser or printer, since those are what is tested.
"""
