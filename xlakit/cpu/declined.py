"""How a way of making machine code says that it does not apply."""


class DeclinedError(Exception):
    """A strategy does not do an instruction; the message says why.

    Another one is tried, and Python does it in the end. So this never leaves the compiler: what a person can meet is an
    UnsupportedError.
    """
