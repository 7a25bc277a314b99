from threading import Thread

import pytest

from rootcellar.etcd.conduit import Conduit


def test_items_arrive_in_order_and_then_the_end():
    conduit = Conduit[int](2)
    producer = Thread(target=lambda: ([conduit.put(n) for n in range(100)], conduit.end()))
    producer.start()
    assert [conduit.get(5) for _ in range(100)] == list(range(100))
    with pytest.raises(EOFError):
        conduit.get(5)
    producer.join()


def test_a_failure_arrives_after_the_items_before_it():
    conduit = Conduit[int](5)
    conduit.put(1)
    conduit.end(ValueError("broken"))
    assert conduit.get() == 1
    with pytest.raises(ValueError, match="broken"):
        conduit.get()


def test_an_empty_conduit_keeps_the_consumer_no_longer_than_it_said():
    with pytest.raises(TimeoutError):
        Conduit[int](1).get(0.01)


def test_closing_frees_a_producer_that_waits_for_room():
    conduit = Conduit[int](1)
    conduit.put(1)
    accepted = []
    producer = Thread(target=lambda: accepted.append(conduit.put(2)))
    producer.start()
    conduit.close()
    producer.join(5)
    assert accepted == [False]
