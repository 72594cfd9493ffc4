"""Devices in this process, arrays that live on them, and programs that run on them one after the other.

client.py      a Client and its devices
device.py      Device: where buffers live
buffer.py      Buffer: an array on a device, there or still to come
transfer.py    from the host's arrays to buffers, copied or not
dlpack.py      buffers and the arrays of other libraries in each other's memory
executable.py  LoadedExecutable: a program and the devices that it runs on
execution.py   Execution: one call of a program, until its results are there
schedule.py    the order in which the devices do what they are asked to, and the threads that do it
"""
