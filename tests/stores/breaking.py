"""Lines on which requests break: each kind once, or some that are drawn."""

from __future__ import annotations

import re

import pytest

from rootcellar.stores import Backoff, RetryingStore

PATIENT = Backoff(attempts=30, deadline=60, base=0.001, throttled_base=0.001, cap=0.01)
"""More tries than a probe has kinds of requests."""

_DRAWN = re.compile(rb"(?<==)[^&]{16,}")


class FirstOfEach:
    """For `Proxy.always`: the first request of each kind has the fault.  A kind is a method, the condition
    and the query but for what is drawn anew each time.
    """

    def __init__(self, fault):
        self.fault = fault
        self.kinds = set()

    def __call__(self, block):
        line, *headers = block.partition(b"\r\n\r\n")[0].split(b"\r\n")
        method, target, _ = line.split(b" ")
        conditions = frozenset(header for header in headers if header.lower().startswith(b"if-"))
        kind = (method, _DRAWN.sub(b"", target.partition(b"?")[2]), conditions)
        if kind in self.kinds:
            return None
        self.kinds.add(kind)
        return self.fault


def probed(store, proxy, fault):
    """What a store behind the proxy finds out about itself on such a line, by one call of whoever opened it,
    and how many requests broke.
    """
    broken = FirstOfEach(fault)
    proxy.always(broken)
    found = RetryingStore(store, PATIENT).probe()
    proxy.always(None)
    return found, len(broken.kinds)


class OnABadLine:
    """For a conformance suite behind a `line` on which requests break by chance."""

    def test_the_line_is_as_bad_as_it_is_said_to_be(self, store, line):
        before = line.fired
        for _ in range(1600):  # how many break is drawn: of 160, one run in 600 has fewer than three
            store.delete("never/there")
            if line.fired - before > 2:
                return
        pytest.fail("it is better")
