"""The devices of a program in native code: the threads and fibers that run them, and their rendezvous."""
