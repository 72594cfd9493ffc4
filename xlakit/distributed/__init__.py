"""Programs on several processes, on one machine or many, with MPI.

    mpiexec -n 4 python train.py

and in it

    cluster = xlakit.distributed.initialize(devices=4)
    client = xlakit.Client(distributed=cluster)

Each process runs its share of the devices, and gives and gets the values of those. Without a launcher, the one process
has them all. See docs/distributed.md.

    mpi.py         MPI itself: how it is loaded, and how its calls are made
    cluster.py     Cluster: the processes, and what they agree on when a run begins
    processes.py   what the runs of one process share to reach the others
    session.py     one run: how groups with members in several processes meet
    reductions.py  the reductions that MPI does
    packing.py     values as bytes
    mailbox.py     from one device to another
    watch.py       what processes ask and tell each other; patience.py: how long they wait
    spread.py      which device is where
    launch.py      initialize, and how processes end
    local_part.py  the devices of a run that are in this process
    fingerprint.py the fingerprint of a program
    peers/         programs on some of several processes, by ZeroMQ instead of MPI; JAX uses it
"""

from xlakit.distributed.launch import Cluster, initialize

__all__ = ["Cluster", "initialize"]
