"""Readers and writers of HLO text, HLO protos and StableHLO."""
