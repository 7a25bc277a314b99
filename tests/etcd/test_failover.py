import socket
import time
from pathlib import Path

import pytest

from rootcellar.errors import EtcdUnavailableError
from rootcellar.etcd.client import EtcdClient
from rootcellar.etcd.process import LoopbackPort


@pytest.fixture
def dead():
    """An endpoint where nothing listens."""
    port = LoopbackPort()
    yield f"http://127.0.0.1:{port.number}"
    port.close()


@pytest.fixture
def mute():
    """An endpoint that accepts connections and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_reads_writes_and_streams_pass_over_a_dead_endpoint(dead, shared):
    with EtcdClient([dead, *shared.endpoints]) as client:
        assert client.put(b"failover", b"1").revision == shared.header().revision
    with EtcdClient([dead, *shared.endpoints]) as client:
        assert client.header().revision == shared.header().revision
    with EtcdClient([dead, *shared.endpoints]) as client, client.snapshot() as stream:
        assert stream.endpoint == shared.endpoints[0]
        assert sum(map(len, stream)) == stream.size + 32
    with EtcdClient([dead, *shared.endpoints]) as client, client.watch(shared.header().revision) as watch:
        assert watch.get(20).last == shared.header().revision


def test_a_read_passes_over_an_endpoint_that_never_answers(mute, shared):
    with EtcdClient([mute, *shared.endpoints], timeout=20) as client:
        before = time.monotonic()
        assert client.header().revision == shared.header().revision
        assert time.monotonic() - before < 15
        before = time.monotonic()
        client.header()
        assert time.monotonic() - before < 5, "the endpoint that answered is asked first from then on"


def connections_to(endpoint):
    """Our connections that are open to this port of the loopback, from Linux's tables."""
    port = f":{int(endpoint.rpartition(':')[2]):04X}"
    ours = {path.readlink().name for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
    tables = (Path("/proc/net", name).read_text() for name in ("tcp", "tcp6"))
    rows = (line.split() for table in tables for line in table.splitlines())
    open_ones = (row for row in rows if row[2].endswith(port) and row[3] == "01")
    return {row[1] for row in open_ones if f"socket:[{row[9]}]" in ours}


def test_a_new_client_connects_by_itself_and_so_never_waits_for_what_another_one_failed_at(alone):
    with EtcdClient([alone.client_url]) as old, EtcdClient([alone.client_url]) as new:
        old.header()
        before = connections_to(alone.client_url)
        new.header()
        # One that another client has closed may still have been open then: those of before may be fewer now.
        assert len(connections_to(alone.client_url) - before) == 1


def test_when_none_answers_each_is_named_with_its_reason(dead, mute):
    with (
        # Each has half of it; a dead one says so at once, on a machine that lets us hear it.
        EtcdClient([mute, dead], timeout=5) as client,
        pytest.raises(EtcdUnavailableError, match="refused") as caught,
    ):
        client.header()
    assert dead in caught.value.message
    assert mute in caught.value.message
    assert "is etcd running there" in caught.value.hint


def test_a_host_that_does_not_exist_is_told():
    with (
        EtcdClient(["http://etcd.invalid:2379"], timeout=5) as client,
        pytest.raises(EtcdUnavailableError) as caught,
    ):
        client.header()
    assert "etcd.invalid" in caught.value.message
    assert caught.value.hint


def test_a_write_that_may_have_arrived_is_not_repeated(three):
    with EtcdClient([member.client_url for member in three], timeout=5) as client:
        client.put(b"a", b"1")
        asked = next(m for m in three if m.client_url == client.endpoints[0])
        others = [member for member in three if member is not asked]
        for member in others:
            member.kill()
        with pytest.raises(EtcdUnavailableError) as caught:
            client.put(b"a", b"2")
        assert asked.client_url in caught.value.message
        assert not any(member.client_url in caught.value.message for member in others)


def test_reads_wait_out_an_election(three):
    with EtcdClient([member.client_url for member in three], timeout=60) as client:
        revision = client.put(b"a", b"1").revision
        three[0].kill()
        three[1].kill()
        three[1].start()
        assert client.header().revision == revision


def test_a_cluster_without_leader_says_so(three):
    with EtcdClient([three[0].client_url]) as client:
        client.put(b"a", b"1")
        three[1].kill()
        three[2].kill()
        with pytest.raises(EtcdUnavailableError) as caught:
            client.header(timeout=3)
        assert caught.value.hint
