"""The exception by which a code generation strategy reports that it does not apply to an instruction."""


class DeclinedError(Exception):
    """A strategy does not apply to an instruction; the message says why.

    The compiler then tries the next strategy; the last one is a host call. The exception never leaves the compiler: the
    error of an unsupported program is an UnsupportedError.
    """
