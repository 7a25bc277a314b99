"""The order of Azure's listings, and what a page of one says."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rootcellar.errors import TransientError, UnsupportedError
from rootcellar.stores.azure.listing import in_order, page
from rootcellar.stores.protocol import ObjectInfo
from tests.stores.places import keys_of

# Few characters, so that keys share beginnings; those beyond U+FFFF are where the orders part.
KEYS = st.sets(st.text("a/\ue000\uffff\U00010000\U0010ffff", min_size=1, max_size=5), max_size=12)


def infos(keys):
    return [ObjectInfo(key, 1, datetime(2026, 1, 1, tzinfo=UTC)) for key in keys]


@given(KEYS)
def test_either_order_becomes_that_of_the_bytes(keys):
    expected = sorted(keys, key=str.encode)
    assert keys_of(in_order(infos(sorted(keys, key=lambda key: key.encode("utf-16-be"))))) == expected
    assert keys_of(in_order(infos(expected))) == expected


def test_any_other_order_is_told():
    with pytest.raises(UnsupportedError, match="does not list its keys in order"):
        list(in_order(infos(["b", "a"])))


def test_versions_of_a_key_stay_in_the_order_given():
    found = [ObjectInfo("a\U00010000", size, datetime(2026, 1, 1, tzinfo=UTC)) for size in (3, 1, 2)]
    assert [info.size for info in in_order(found)] == [3, 1, 2]


def test_a_name_that_xml_cannot_hold_and_a_folder_are_known():
    blob = "<Properties><Last-Modified>Sat, 21 Nov 2026 09:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
    blob += "<Content-Length>5</Content-Length>{}</Properties></Blob>"
    plain = '<Blob><Name Encoded="true">a%01b%2541</Name>' + blob.format("")
    folder = "<Blob><Name>folder</Name>" + blob.format("<ResourceType>directory</ResourceType>")
    listed = f"<Blobs>{plain}{folder}</Blobs><NextMarker>more</NextMarker>"
    found, marker = page(f"<EnumerationResults>{listed}</EnumerationResults>".encode(), "azure://a/b")
    moment = datetime(2026, 11, 21, 9, tzinfo=UTC)
    assert found == [ObjectInfo("a\x01b%41", 5, moment, "0x1")]
    assert marker == "more"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<EnumerationResults><Blobs>",
        b"<html/>",
        b"<EnumerationResults><Blobs><Blob/></Blobs></EnumerationResults>",
    ],
)
def test_what_is_no_listing_is_worth_another_try(body):
    with pytest.raises(TransientError, match="listing"):
        page(body, "azure://a/b")
