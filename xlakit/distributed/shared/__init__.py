"""Messages through memory that the processes of one machine share.

transport.py  SharedMemoryTransport, which also uses ZeroMQ
rings.py      ring buffers of messages from one process to another
segments.py   the bodies of large messages, which receivers read in place
doorbell.py   waking of a process by another one
"""
