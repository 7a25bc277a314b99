"""Members, their ids and rows.  The ids and bytes asserted here were taken from etcd 3.4 and 3.5."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import RecordError, UsageError
from rootcellar.mvcc.membership import (
    Member,
    cluster_id,
    decode_attributes,
    decode_member,
    encode_member,
    member_id,
    normalise_peer_urls,
    parse_member_key,
    parse_members,
)

texts = st.text(st.characters(exclude_categories=["Cs"]))
urls = st.lists(texts, max_size=3).map(tuple)
members = st.builds(Member, st.integers(1, 2**64 - 1), texts, urls, urls, st.booleans())

M1 = Member(0x5C76A90AE78BCEE7, "m1", ("http://127.0.0.1:33380",))
M2 = Member(0xBB91926054364AFA, "m2", ("http://127.0.0.1:33381",))


def test_ids_are_those_that_etcd_gives():
    m1, m2 = parse_members(["m1=http://127.0.0.1:33380,m2=http://127.0.0.1:33381"], token="etcd-cluster")

    assert (m1, m2) == (M1, M2)
    assert cluster_id([m2.id, m1.id]) == 3193977248318310502
    assert cluster_id([m1.id]) == 6012025715201963436


def test_another_token_gives_other_ids():
    assert member_id(M1.peer_urls, "etcd-cluster") == M1.id
    assert member_id(M1.peer_urls, "etcd-cluster-2") != M1.id


def test_the_order_of_urls_does_not_change_an_id():
    assert member_id(("http://a:1", "http://b:1"), "t") == member_id(("http://b:1", "http://a:1"), "t")


@pytest.mark.parametrize(
    ("given_urls", "normal"),
    [
        (["http://10.0.0.1:2380"], ("http://10.0.0.1:2380",)),
        (["  HTTPS://Etcd-0.Etcd:2380\n"], ("https://Etcd-0.Etcd:2380",)),
        (["http://b:1", "http://a:2"], ("http://a:2", "http://b:1")),
        (["http://[::1]:2380"], ("http://[::1]:2380",)),
        (["http://[fe80::1%25eth0]:2380"], ("http://[fe80::1%25eth0]:2380",)),
        (["unix://m0:1", "unixs://m0:2"], ("unix://m0:1", "unixs://m0:2")),
    ],
)
def test_peer_urls_take_the_form_that_etcd_hashes(given_urls, normal):
    assert normalise_peer_urls(given_urls) == normal


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("10.0.0.1:2380", "has no scheme"),
        ("ftp://a:1", "has no scheme of http, https, unix, unixs"),
        ("http:a:1", "has no scheme"),
        ("http://a:2380/", "must not contain a path"),
        ("http://a:2380/x", "must not contain a path"),
        ("http://a", "not of the form"),
        ("http://:2380", "not of the form"),
        ("http://a:", "not of the form"),
        ("http://a:0", "not of the form"),
        ("http://a:65536", "not of the form"),
        ("http://a:\u0661", "not of the form"),
        ("http://::1:2380", "not of the form"),
        ("http://[::g]:2380", "not of the form"),
        ("http://[::1%eth0]:2380", "not of the form"),
        ("http://user@a:2380", "not of the form"),
        ("http://a:2380?x=y", "not of the form"),
        ("http://a b:2380", "not of the form"),
        ("http://a:2380,http://b:2380", "must not contain a path"),
    ],
)
def test_a_url_that_no_peer_can_dial_is_refused_with_a_hint(url, complaint):
    with pytest.raises(UsageError, match=complaint) as caught:
        normalise_peer_urls([url])

    assert caught.value.hint == "write a peer URL as http://host:2380 or https://host:2380, without a path"


def test_a_member_may_have_several_urls_in_one_value():
    (member,) = parse_members(["a=http://y:1,a=http://x:1"], token="t")

    assert member.peer_urls == ("http://x:1", "http://y:1")


def test_members_may_come_in_values_of_their_own():
    together = parse_members(["a=http://a:1,b=http://b:1,"], token="t")

    assert parse_members(["b=http://b:1", " a = http://a:1"], token="t") == together


@pytest.mark.parametrize(
    ("values", "complaint", "hint"),
    [
        ([], "no members are given", "name at least one as name=http://host:2380"),
        ([","], "no members are given", "name at least one as name=http://host:2380"),
        (["http://a:1"], "member 'http://a:1' has no name", "write it as name=http://host:2380"),
        (["http://a:1?b=c"], "has no name", "write it as name=http://host:2380"),
        (["=http://a:1"], "'' is no name for a member", "write it as name=http://host:2380"),
        (["a\x00=http://a:1"], "is no name for a member", "write it as name=http://host:2380"),
        (["a="], "peer URL '' has no scheme", "write a peer URL as http://host:2380"),
        (["a=http://a:1", "a=http://b:1"], "member a is given twice", "as one value: a=URL1,a=URL2"),
        (["a=http://a:1,b=http://a:1"], "members a and b share the peer URL http://a:1", "of its own"),
        (["a=http://a:1,a=HTTP://a:1"], "peer URL http://a:1 is given twice", "one member, once"),
    ],
)
def test_members_that_cannot_be_meant_are_refused_with_a_hint(values, complaint, hint):
    with pytest.raises(UsageError) as caught:
        parse_members(values, token="t")

    assert complaint in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize(
    ("member", "key", "value"),
    [
        (
            M1,
            b"5c76a90ae78bcee7",
            b'{"id":6662698563040693991,"peerURLs":["http://127.0.0.1:33380"],"name":"m1"}',
        ),
        (
            Member(0x5FA5673B53CBCB5, "", ("http://a:1", "http://b:1"), ("http://c:2",), is_learner=True),
            b"5fa5673b53cbcb5",
            (
                b'{"id":430751769329188021,"peerURLs":["http://a:1","http://b:1"],"isLearner":true,'
                b'"clientURLs":["http://c:2"]}'
            ),
        ),
        (
            Member(2**64 - 1, '<a&"b\\>\u2028é\x01', ()),
            b"ffffffffffffffff",
            (
                b'{"id":18446744073709551615,"peerURLs":[],'
                b'"name":"\\u003ca\\u0026\\"b\\\\\\u003e\\u2028\xc3\xa9\\u0001"}'
            ),
        ),
    ],
)
def test_a_row_has_the_bytes_that_etcd_writes(member, key, value):
    assert encode_member(member) == (key, value)


@given(members)
def test_a_row_comes_back_as_the_member_it_holds(member):
    assert decode_member(*encode_member(member)) == member


def test_a_row_written_without_urls_or_with_fields_of_a_newer_etcd_is_read():
    assert decode_member(b"1", b'{"id":1,"peerURLs":null,"zone":{"a":[1]}}') == Member(1, "", ())


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"1", b"", "cannot be read"),
        (b"1", b"removed", "cannot be read"),
        (b"1", b'{"id":"1","peerURLs":[]}', "cannot be read"),
        (b"1", b'{"id":1}', "cannot be read"),
        (b"1", b'{"id":1,"peerURLs":[]', "cannot be read"),
        (b"1", b'{"id":1,"peerURLs":[],"name":"\xff"}', "cannot be read"),
        (b"0", b'{"id":0,"peerURLs":[]}', "cannot be read"),
        (b"1", b'{"id":1,"peerURLs":[],"x":' + b"[" * 100_000, "cannot be read"),
        (b"1", b'{"id":2,"peerURLs":[]}', "row b'1' holds the member 2"),
        (b"01", b'{"id":1,"peerURLs":[]}', "row b'01' holds the member 1"),
        (b"AB", b'{"id":171,"peerURLs":[]}', "row b'AB' holds the member ab"),
        (b"10000000000000000", b'{"id":18446744073709551616,"peerURLs":[]}', "member row"),
    ],
)
def test_a_row_that_etcd_would_not_write_is_refused(key, value, complaint):
    with pytest.raises(RecordError, match=complaint):
        decode_member(key, value)


@given(st.binary(max_size=40), st.binary(max_size=80))
def test_any_bytes_are_a_member_or_a_record_error(key, value):
    with pytest.raises(RecordError):
        decode_member(key, value)


def test_a_member_is_read_from_the_two_values_of_the_v2_store():
    assert decode_attributes(
        "1f", '{"peerURLs":["u"],"isLearner":true}', '{"name":"n","clientURLs":["c"]}'
    ) == Member(0x1F, "n", ("u",), ("c",), is_learner=True)
    assert decode_attributes("1f", '{"peerURLs":["u"]}', "") == Member(0x1F, "", ("u",))


@pytest.mark.parametrize("key", ["", "0", "01", "1G", "A", "1" * 17, "-1", "1\n"])
def test_a_key_that_is_no_member_id_is_refused(key):
    with pytest.raises(RecordError, match="is no member id"):
        parse_member_key(key)
