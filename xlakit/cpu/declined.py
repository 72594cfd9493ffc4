"""The exception by which a strategy of code generation says that it does not apply."""


class DeclinedError(Exception):
    """A strategy does not apply to an instruction; the message says why.

    The next strategy is tried; the last is a host call. So this never leaves the compiler: what a person can meet is an
    UnsupportedError.
    """
