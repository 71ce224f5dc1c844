"""The list of cases: each is a function with a name that says what holds."""

ALL = []


def case(name, long=False, own=False, seconds=120):
    """`own`: builds its own scene instead of the shared one; `long`: only with --long."""
    def add(function):
        ALL.append((name, function, long, own, seconds))
        return function
    return add
