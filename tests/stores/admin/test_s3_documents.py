"""Policies and lifecycle rules, merged."""

import pytest

from rootcellar.stores.admin.s3.documents import (
    OLD_TLS,
    PLAIN,
    RULE,
    aborts_after,
    denies_unencrypted,
    statements,
    with_rule,
    with_statements,
)


def test_plain_http_and_old_tls_are_denied_apart():
    """In one statement both conditions would have to hold, and plain HTTP has no version of TLS."""
    plain, old = statements("b", "eu-west-1")
    assert plain["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert old["Condition"] == {"NumericLessThan": {"s3:TlsVersion": "1.2"}}
    for each in (plain, old):
        assert (each["Effect"], each["Principal"], each["Action"]) == ("Deny", "*", "s3:*")
        assert each["Resource"] == ["arn:aws:s3:::b", "arn:aws:s3:::b/*"]


@pytest.mark.parametrize(
    ("region", "partition"),
    [
        ("eu-west-1", "aws"),
        ("cn-north-1", "aws-cn"),
        ("us-gov-west-1", "aws-us-gov"),
        ("eusc-de-1", "aws-eusc"),
    ],
)
def test_each_partition_has_its_own_names(region, partition):
    assert statements("b", region)[0]["Resource"][0] == f"arn:{partition}:s3:::b"


def test_statements_of_others_stay():
    theirs = {"Sid": "Theirs", "Effect": "Allow", "Principal": "*", "Action": "s3:GetObject", "Resource": "*"}
    for found in ({"Version": "2008-10-17", "Id": "x", "Statement": theirs}, {"Statement": [theirs]}):
        merged = with_statements(found, "b", "eu-west-1")
        assert [each["Sid"] for each in merged["Statement"]] == ["Theirs", PLAIN, OLD_TLS]
        assert {name: merged[name] for name in found if name != "Statement"} == {
            name: found[name] for name in found if name != "Statement"
        }
        assert denies_unencrypted(merged, "b", "eu-west-1")
        assert with_statements(merged, "b", "eu-west-1") == merged


def test_a_statement_of_ours_that_somebody_loosened_is_put_right():
    found = with_statements(None, "b", "eu-west-1")
    found["Statement"][0] = {**found["Statement"][0], "Effect": "Allow"}
    assert not denies_unencrypted(found, "b", "eu-west-1")
    assert with_statements(found, "b", "eu-west-1") == with_statements(None, "b", "eu-west-1")


def test_rules_of_others_stay_and_ours_takes_their_form():
    new = {"ID": "theirs", "Status": "Enabled", "Filter": {"Prefix": "tmp/"}, "Expiration": {"Days": 3}}
    old = {"ID": "older", "Status": "Enabled", "Prefix": "tmp/", "Expiration": {"Days": 3}}
    assert with_rule([new], 7)[0] == new
    assert with_rule([new], 7)[1]["Filter"] == {"Prefix": ""}
    assert with_rule([old], 7)[1]["Prefix"] == ""
    assert [each["ID"] for each in with_rule(with_rule([new], 9), 7)] == ["theirs", RULE]


@pytest.mark.parametrize(
    ("rule", "days"),
    [
        ({"Filter": {"Prefix": ""}}, 5),
        ({"Filter": {}}, 5),
        ({"Prefix": ""}, 5),
        ({}, 5),
        ({"Filter": {"Prefix": "a/"}}, None),
        ({"Prefix": "a/"}, None),
        ({"Filter": {"Tag": {"Key": "a", "Value": "b"}}}, None),
        ({"Filter": {"And": {"Prefix": "", "Tags": []}}}, None),
        ({"Status": "Disabled"}, None),
    ],
)
def test_a_rule_for_all_uploads_is_good_enough_whosever_it_is(rule, days):
    abort = {"AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 5}}
    assert aborts_after([{"ID": "x", "Status": "Enabled", **abort, **rule}]) == days


def test_what_expires_objects_aborts_no_uploads():
    assert aborts_after([{"ID": "x", "Status": "Enabled", "Expiration": {"Days": 1}}]) is None
