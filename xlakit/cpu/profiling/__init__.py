"""Profiles of compiled programs: the time of each step, by instruction, source line and thread.

A program that is compiled with the option ``profile`` reads the clock between its steps. ``recorder.py`` has the memory
for the times, and the native code that writes them; ``cpu/entry/probes.py`` puts the calls into the entry. ``rows.py``
describes each step and its least possible time, ``report.py`` combines both, ``trace_events.py`` writes timelines for
Perfetto, and ``process.py`` profiles every program of a process.
"""
