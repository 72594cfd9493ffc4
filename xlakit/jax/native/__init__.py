"""The functions of the interface in machine code: all that is hot, and all that may run while Python cleans up.

An object may go while a Python exception is on its way, or when the interpreter ends: what runs then is not Python.

records.py   what objects are made of
getters.py   functions that only hand out what a record holds, as a table
errors.py    errors, and the functions that are not supported
events.py    events
memory.py    blocks: memory that buffers share
buffers.py   buffers, and copies between them and the host
execute.py   programs
library.py   all of it in memory, with the addresses
"""
