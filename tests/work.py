"""How much work something is, counted in a way that is the same on every machine."""

import cProfile
from collections.abc import Iterator
from contextlib import contextmanager


class Work:
    calls = 0


@contextmanager
def counted() -> Iterator[Work]:
    """Counts the calls of functions, of Python's own as well."""
    work = Work()
    profile = cProfile.Profile()
    with profile:
        yield work
    work.calls = sum(entry.callcount for entry in profile.getstats())
