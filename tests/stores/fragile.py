"""Stores that fail as they are told, and time that passes when somebody sleeps."""

import itertools

from rootcellar.errors import ThrottledError, TransientError
from rootcellar.stores.decorator import StoreDecorator

BROKEN = TransientError("broken")
SLOW = ThrottledError("slow down")


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self):
        self.now = 1000.0
        self.sleeps = []

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.sleeps.append(seconds)
        self.now += seconds


class Ticking(Clock):
    """Every look at it takes a second."""

    def monotonic(self):
        self.now += 1
        return self.now


class Fragile(StoreDecorator):
    """A real store that fails as it is told: `failures` are raised one by one, each once, when a verb is
    called or, for a stream, when `after` items have passed.
    """

    def __init__(self, inner, *failures, after=0):
        super().__init__(inner)
        self.failures = list(failures)
        self.after = after
        self.calls = []

    def _fail(self):
        if self.failures:
            raise self.failures.pop(0)

    def _break(self, items):
        for number, item in enumerate(items):
            if number == self.after:
                self._fail()
            yield item
        self._fail()

    def list(self, prefix="", *, after=""):
        self.calls.append(("list", after))
        return self._break(super().list(prefix, after=after))

    def get(self, key, *, start=0, end=None, version=None, etag=None):
        self.calls.append(("get", start))
        return self._break(super().get(key, start=start, end=end, version=None, etag=etag))

    def put(self, key, chunks, *, condition=None):
        self.calls.append(("put", key))
        taken = list(itertools.islice(chunks, self.after))
        self._fail()
        return super().put(key, [*taken, *(chunks if not taken else [])], condition=condition)

    def stat(self, key, *, version=None):
        self._fail()
        return super().stat(key, version=version)

    def delete(self, key, *, version=None):
        self._fail()
        super().delete(key, version=version)


class ForgetfulDeletes(StoreDecorator):
    """Answers each batch as it is told, and then truly."""

    def __init__(self, inner, *answers):
        super().__init__(inner)
        self.answers = list(answers)
        self.batches = []

    def delete_many(self, keys):
        self.batches.append(list(keys))
        if self.answers:
            answer = self.answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            super().delete_many([key for key in self.batches[-1] if key not in answer])
            return answer
        return super().delete_many(self.batches[-1])
