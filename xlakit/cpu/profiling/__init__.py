"""Profiles of compiled programs: how long each step took, of which instructions and lines it is made, on which threads.

A program that is compiled with the option ``profile`` reads the clock between its steps. ``recorder.py`` is the memory
that it writes the times to, with the code that writes; ``cpu/entry/probes.py`` puts the calls into the entry.
``rows.py`` says what each step is and what it costs at best, ``report.py`` brings both together, ``trace_events.py``
writes timelines for Perfetto, and ``process.py`` does all of it for every program of a process.
"""
