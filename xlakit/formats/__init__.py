"""How a program travels: HLO text, HLO proto, StableHLO."""
