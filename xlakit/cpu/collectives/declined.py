"""How machine code says that it does not do a collective."""


class DeclinedError(Exception):
    """Python does this collective: its message says why."""
