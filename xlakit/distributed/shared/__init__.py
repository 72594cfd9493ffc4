"""Messages through memory that the processes of one machine share.

transport.py  SharedMemoryTransport, beside ZeroMQ
rings.py      messages from one process to another
segments.py      the bodies of large messages, read where they are written
doorbell.py   how a process wakes another one
"""
