"""Programs on several processes, on one machine or many, with MPI.

    mpiexec -n 4 python train.py

and in it

    cluster = xlakit.distributed.initialize(devices=4)
    client = xlakit.Client(distributed=cluster)

Each process runs its share of the devices, and passes the arguments and gets the results of these. Without a launcher,
the single process has all devices. See docs/distributed.md.

    launch.py         initialize, and how processes end
    network.py        Network: the runs that this process takes part in
    session.py        one run: collectives made of messages
    local_part.py     the devices of a run that are in this process
    deadline.py       how long a process waits for others, and the error when it gives up
    credits.py        how far a process may run ahead of another one
    connections.py    messages to and from the other processes, and which of these have ended
    messages.py       the kinds of messages; packing.py: values as bytes
    transport.py      the interface of message transports
    mpi_transport.py  MPI, for processes that it has started; mpi.py: how it is loaded and called
    zeromq.py         ZeroMQ, for processes of JAX that MPI has not started
    shared/           shared memory between the processes of one machine
    reductions.py     the reductions that may be combined in any order
    fingerprint.py    hashes of programs, by which processes check that they run the same one
    processors.py     the division of a machine's processors between its processes
"""

from xlakit.distributed.launch import initialize
from xlakit.runtime.cluster import Cluster

__all__ = ["Cluster", "initialize"]
