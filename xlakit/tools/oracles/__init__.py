"""What ``reduce`` and ``bisect`` ask of a module, and the processes in which it is asked."""
