"""Devices in this process, buffers on them, and programs that run on them in order.

client.py      a Client and its devices
device.py      Device: where buffers live
buffer.py      Buffer: an array on a device, there or still to come
transfer.py    buffers from arrays of the host, copied or not
dlpack.py      buffers and the arrays of other libraries in each other's memory
executable.py  LoadedExecutable: a program and the devices that it runs on
execution.py   Execution: one call of a program, until its results are there
schedule.py    the order in which devices run parts of executions, and their threads
"""
