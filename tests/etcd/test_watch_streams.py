"""What no real etcd does on demand: streams scripted message by message, through a fake connection."""

import grpc
import pytest

from rootcellar.errors import CompactedError, EtcdDeniedError, ForkedError
from rootcellar.etcd._proto import kv_pb2, rpc_pb2
from rootcellar.etcd.watch import Watch


class Broken(grpc.RpcError):
    """A stream that ended as streams do when a member goes away."""

    def code(self):
        return grpc.StatusCode.UNAVAILABLE

    def details(self):
        return "Socket closed"


class FakeConnection:
    """Plays one script per stream: responses, or an error.  Remembers where each stream was to start."""

    def __init__(self, *scripts, version="3.6.1"):
        self.scripts = list(scripts)
        self.version = version
        self.starts = []
        self.tokens = 0

    def order(self, among):
        return list(among)

    def prefer_next(self, failed, among):
        pass

    def unary(self, call, question, *, among, timeout):
        return rpc_pb2.StatusResponse(version=self.version)

    def metadata(self, endpoint, timeout):
        return ()

    def refresh_token(self, refusal):
        return False

    def forget_token(self):
        self.tokens += 1
        return True

    def watch(self, questions, endpoint, metadata):
        self.starts.append(next(questions).create_request.start_revision)
        return FakeStream(self.scripts.pop(0) if self.scripts else [])


class FakeStream:
    def __init__(self, script):
        self.script = script

    def __iter__(self):
        for step in self.script:
            if isinstance(step, Exception):
                raise step
            yield step
        raise Broken

    def cancel(self):
        pass


def events(*revisions):
    return [kv_pb2.Event(kv=kv_pb2.KeyValue(key=b"k", mod_revision=revision)) for revision in revisions]


def message(*revisions, header=1000, fragment=False, watch_id=0, cluster=7):
    return rpc_pb2.WatchResponse(
        header=rpc_pb2.ResponseHeader(revision=header, cluster_id=cluster),
        events=events(*revisions),
        fragment=fragment,
        watch_id=watch_id,
    )


def delivered(connection, until):
    """The revisions of each batch until one reaches `until`, where the stream starts at 2."""
    batches = []
    with Watch(connection, ["fake"], start=2, key=b"\0", range_end=b"\0", patience=10) as watch:
        while not batches or not batches[-1] or batches[-1][-1] < until:
            batch = watch.get(10)
            batches.append([event.kv.mod_revision for event in batch.events] or [batch.last])
    return batches


def test_a_broken_stream_resumes_at_the_last_event_not_behind_the_header():
    connection = FakeConnection([message(2, 3, header=60_001)], [message(3, 4, header=60_001)])
    assert delivered(connection, 4) == [[2, 3], [4]]
    assert connection.starts == [2, 3]


def test_a_revision_in_fragments_is_delivered_whole():
    connection = FakeConnection(
        [message(2, 3, 3, fragment=True), message(3, 3, fragment=True), message(3, 4)]
    )
    assert delivered(connection, 4) == [[2], [3, 3, 3, 3, 3, 4]]


def test_what_is_whole_is_not_held_back_by_later_fragments():
    connection = FakeConnection([message(2, 3, fragment=True), message(4, 4, fragment=True), message(4)])
    assert delivered(connection, 4) == [[2], [3], [4, 4, 4]]


def test_a_revision_whose_last_fragment_never_came_is_fetched_again():
    connection = FakeConnection([message(2, 3, 3, fragment=True), Broken()], [message(2, 3, 3, 3)])
    assert delivered(connection, 3) == [[2], [3, 3, 3]]
    assert connection.starts == [2, 2]


def test_older_events_of_a_lagging_member_are_dropped():
    connection = FakeConnection([message(2, 3)], [message(1, 2), message(2, 3, 4)])
    assert delivered(connection, 4) == [[2, 3], [4]]


def test_a_periodic_progress_report_moves_the_place_to_resume():
    connection = FakeConnection([message(2), message(header=9)], [message(10)])
    assert delivered(connection, 10) == [[2], [9], [10]]
    assert connection.starts == [2, 10]


def test_a_manual_progress_report_of_an_old_etcd_moves_nothing():
    connection = FakeConnection(
        [message(2), message(header=9, watch_id=-1)], [message(2, 3)], version="3.5.7"
    )
    assert delivered(connection, 3) == [[2], [3]]
    assert connection.starts == [2, 2]


def test_the_header_of_a_created_watch_is_no_progress():
    created = rpc_pb2.WatchResponse(created=True, header=rpc_pb2.ResponseHeader(revision=50, cluster_id=7))
    connection = FakeConnection([created], [message(2)])
    assert delivered(connection, 2) == [[2]]
    assert connection.starts == [2, 2]


def test_a_denial_is_believed_only_of_a_fresh_token():
    denial = rpc_pb2.WatchResponse(canceled=True, cancel_reason="etcdserver: permission denied")
    connection = FakeConnection([denial], [message(2)], [denial], [denial])
    with Watch(connection, ["fake"], start=2, key=b"\0", range_end=b"\0", patience=10) as watch:
        assert watch.get(10).last == 2
        with pytest.raises(EtcdDeniedError, match="permission denied"):
            watch.get(10)
    assert connection.tokens >= 2


def forked(*scripts, **options):
    connection = FakeConnection([message(2, 3)], *scripts)
    with Watch(connection, ["fake"], start=2, key=b"\0", range_end=b"\0", patience=10, **options) as watch:
        assert watch.get(10).last == 3
        watch.get(10)


def test_another_cluster_behind_the_same_endpoint_does_not_continue_the_watch():
    with pytest.raises(ForkedError, match="cluster 7 has become cluster 8"):
        forked([message(3, 4, cluster=8)])


def test_a_history_that_was_rewritten_does_not_continue_the_watch():
    other = message(3, 4)
    other.events[0].kv.value = b"another value"
    with pytest.raises(ForkedError, match="revision 3 is not the change it was"):
        forked([other])


def test_a_revision_that_lost_an_event_does_not_continue_the_watch():
    connection = FakeConnection([message(2, 3, 3)], [message(3, 4)])
    with (
        Watch(connection, ["fake"], start=2, key=b"\0", range_end=b"\0", patience=10) as watch,
        pytest.raises(ForkedError, match="revision 3"),
    ):
        list(watch)


def test_where_the_last_revision_is_gone_nothing_is_claimed_about_what_follows():
    with pytest.raises(CompactedError, match="revision 3 is gone") as caught:
        forked([message(4)])
    assert caught.value.hint == "take a new full"
    with pytest.raises(CompactedError, match="revision 3 is gone"):
        forked([message(header=9)])


def test_a_lagging_member_is_given_time_to_reach_the_last_revision():
    connection = FakeConnection([message(2, 3)], [message(1, 2), message(3), message(4)])
    assert delivered(connection, 4) == [[2, 3], [4]]
