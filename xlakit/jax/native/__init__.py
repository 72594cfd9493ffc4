"""The functions of the interface in machine code: those that are called often, and the destructors.

Destructors may be called while a Python exception propagates, or while the interpreter shuts down, when no Python code
can run.

records.py   the fields of objects
getters.py   functions that only return fields of a record, as a table
client.py    other functions of the client and its devices, and functions that do nothing
errors.py    errors, and the functions that are not supported
events.py    events
python.py    the GIL and signals
memory.py    blocks: memory that buffers share
buffers.py   buffers; layouts.py the order of their dimensions
transfer.py  buffers from memory of the host; staging.py copies whose other side comes later
executables.py, prepare.py, execute.py   programs, and calls of them
queue.py     calls that run later, on a thread of their own; dispatch.py which calls do
text.py      all functions as LLVM IR
library.py   the functions compiled and loaded, with their addresses
"""
