"""``python -m fuzz.bug_bank``: faults that there once were, put back one by one, must be found by the nets.

Each is an edit of the sources (:mod:`fuzz.bug_bank.bugs`), made in a copy of the tree; then the nets of
:mod:`fuzz.nets` run in it for the time that each has in ``.ci/run``, until two have found the fault. The table says by
how many nets each was found and after how many seconds; the exit status is 1 where one was found by none::

    python -m fuzz.bug_bank
    python -m fuzz.bug_bank --bug invariant-loads --net idioms --seed 7

Other processes take time from the nets. With ``--as-in``, each makes as many programs as an output of ``fuzz.nets``
tells of, such as that of ``.ci/run``. ``--keep`` names a file of what was found, with which a run goes on where another
one ended::

    python -m fuzz.bug_bank --own --as-in nets.txt --keep found.json

A fault that a net is to find and does not is a reason to mend the net.
"""
