"""Programs made from a seed: HLO text, arguments, and how exact the result must be.

``operations`` has programs of one operation each, a file for each family; ``large`` those on large arrays; ``composed``
modules of many operations. The files know HLO text only, and nothing of xlakit's own builder,
parser or printer, since those are what is tested.
"""
