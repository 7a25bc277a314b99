"""What is found out once."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from rootcellar.stores.once import Once


def test_one_of_many_threads_finds_it_and_all_have_it():
    finds, together = [], Barrier(8)

    def find():
        finds.append(1)
        return len(finds)

    def ask(once):
        together.wait(30)
        return once.get(find)

    once = Once()
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(ask, [once] * 8)) == [1] * 8
    assert finds == [1]


def test_a_no_is_remembered_too():
    once = Once()
    assert once.get(lambda: False) is False
    assert once.get(lambda: True) is False


def test_what_could_not_be_found_is_looked_for_again():
    once = Once()
    with pytest.raises(ZeroDivisionError):
        once.get(lambda: 1 // 0)
    assert once.get(lambda: 7) == 7
