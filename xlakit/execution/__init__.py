"""What every backend shares while programs run:

devices, feeds, channels, rendezvous, process groups, custom calls, random state.
"""
