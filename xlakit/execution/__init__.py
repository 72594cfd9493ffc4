"""The parts of program execution that all backends share:

devices, feeds, channels, rendezvous, process groups, custom calls, random state.
"""
