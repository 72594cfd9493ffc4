"""The devices of a program in native code: the threads and fibers that run them, and their rendezvous.

From the call of a program on several devices to the devices themselves:

replicas.py        the entry: one thread, or one for each processor, by what earlier calls took
device_threads.py  the threads, which sleep between runs
shares.py          what one of them does: runs its share of the devices until all have ended
fibers.py          the stacks of a share with several devices
rendezvous.py      where devices meet: the states of a slot, and the waits
deadlocks.py       whether devices that wait can still meet

What a device does while it waits belongs to shares.py, what ends its wait to rendezvous.py. A change of the protocol is
made in the models of tests/cpu/runtime first, which explore all interleavings.
"""
