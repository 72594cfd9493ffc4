"""``python -m fuzz.bug_bank``: faults that there once were, put back one by one, must be found by the nets.

Each is an edit of the sources (:mod:`fuzz.bug_bank.bugs`), made in a copy of the tree; then every net of
:mod:`fuzz.nets` runs in it for the time that it has in ``.ci/run``. The table says after how many seconds each fault
was found by each net; the exit status is 1 where one was found by none::

    python -m fuzz.bug_bank
    python -m fuzz.bug_bank --bug invariant-loads --net idioms --seed 7

A fault that a net is to find and does not is a reason to mend the net.
"""
