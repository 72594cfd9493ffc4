"""Programs on the devices of some of several processes, which send each other messages.

    transport.py      connections between processes: the interface
    zeromq.py         by ZeroMQ
    mpi_transport.py  by MPI, for processes that it has started
    letters.py        what travels on them
    credits.py        how far a process may run ahead of another one
    network.py        Network: the processes, and the runs that this one takes part in
    session.py        one run: collectives made of messages
    patience.py       how long a process waits for another one

Unlike the processes that MPI starts (see :mod:`xlakit.distributed`), these need not all run the same programs: a
program concerns the processes that have its devices, in any order, and no others. Runs are counted for each set of
processes.
"""
