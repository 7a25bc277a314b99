import hashlib
import os
import signal

import pytest

from rootcellar.errors import EtcdUnavailableError
from rootcellar.etcd.client import EtcdClient


def fill(client, megabytes):
    for number in range(megabytes):
        client.put(b"%d" % number, os.urandom(1_000_000))


def test_the_stream_is_the_database_and_its_hash(shared):
    fill(shared, 3)
    with shared.snapshot() as stream:
        blocks = list(stream)
    whole = b"".join(blocks)
    assert len(whole) == stream.size + 32
    assert stream.size % 4096 == 0
    assert stream.size > 3_000_000
    assert hashlib.sha256(whole[:-32]).digest() == whole[-32:]
    assert max(map(len, blocks)) < 2 << 20


def test_a_slow_reader_holds_little_and_loses_nothing(client):
    fill(client, 40)
    with client.snapshot() as stream:
        blocks = iter(stream)
        received = [next(blocks)]
        fill(client, 5)
        received += list(blocks)
    assert sum(map(len, received)) == stream.size + 32
    assert hashlib.sha256(b"".join(received)[:-32]).digest() == b"".join(received)[-32:]


def test_a_stream_cut_by_a_crash_is_an_error_not_an_end(alone, client):
    fill(client, 60)
    with client.snapshot() as stream:
        blocks = iter(stream)
        next(blocks)
        alone.kill()
        with pytest.raises(EtcdUnavailableError) as caught:
            list(blocks)
    assert alone.client_url in caught.value.message


def test_a_member_that_stalls_is_given_up(alone, client):
    fill(client, 60)
    with client.snapshot() as stream:
        blocks = iter(stream)
        next(blocks)
        stream._idle = 0.5  # noqa: SLF001 - the first block alone takes longer on a busy machine
        os.kill(alone.pid, signal.SIGSTOP)
        with pytest.raises(EtcdUnavailableError, match="brought nothing") as caught:
            list(blocks)
        assert caught.value.hint
        os.kill(alone.pid, signal.SIGCONT)


def test_a_member_that_is_gone_before_the_first_byte_is_passed_over(alone, client):
    alone.kill()
    with pytest.raises(EtcdUnavailableError, match="Connection refused"):
        client.snapshot()


def test_closing_early_frees_the_server_at_once(alone, client):
    fill(client, 60)
    with client.snapshot() as stream:
        next(iter(stream))
    alone.stop(grace=20)
    assert not alone.running
    with EtcdClient([alone.client_url]) as other:
        alone.start()
        alone.wait_ready(other)
