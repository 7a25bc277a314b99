"""A bucket's policy and its lifecycle rules, with ours merged into what others have written.  Pure.

S3 replaces both documents as a whole, so what is there has to be read, and sent again with ours: a statement
and a rule of ours are known by their names, and nobody else's is touched.
"""

from __future__ import annotations

from typing import Any, Final

RULE: Final = "rootcellar-abort-uploads"
PLAIN: Final = "RootcellarDenyPlainHttp"
OLD_TLS: Final = "RootcellarDenyOldTls"

_PARTITIONS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc"}


def statements(bucket: str, region: str) -> list[dict[str, Any]]:
    """What denies unencrypted requests.  Two statements: the conditions of one are joined by "and", and no
    plain request has a version of TLS that would be too old.
    """
    partition = next((name for start, name in _PARTITIONS.items() if region.startswith(start)), "aws")
    arn = f"arn:{partition}:s3:::{bucket}"
    denied = {"Effect": "Deny", "Principal": "*", "Action": "s3:*", "Resource": [arn, f"{arn}/*"]}
    return [
        {"Sid": PLAIN, **denied, "Condition": {"Bool": {"aws:SecureTransport": "false"}}},
        {"Sid": OLD_TLS, **denied, "Condition": {"NumericLessThan": {"s3:TlsVersion": "1.2"}}},
    ]


def denies_unencrypted(policy: dict[str, Any] | None, bucket: str, region: str) -> bool:
    """Whether both statements are in the policy, as we would write them."""
    return policy is not None and all(each in _listed(policy) for each in statements(bucket, region))


def with_statements(policy: dict[str, Any] | None, bucket: str, region: str) -> dict[str, Any]:
    """The policy with both statements, and all others as they were."""
    found = policy or {"Version": "2012-10-17"}
    others = [each for each in _listed(found) if each.get("Sid") not in {PLAIN, OLD_TLS}]
    return {**found, "Statement": [*others, *statements(bucket, region)]}


def aborts_after(rules: list[dict[str, Any]]) -> int | None:
    """Days after which unfinished uploads of any key are aborted, by whosever rule; None for never."""
    days = [
        rule["AbortIncompleteMultipartUpload"]["DaysAfterInitiation"]
        for rule in rules
        if rule.get("Status") == "Enabled" and _is_for_all(rule)
        if rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
    ]
    return min(days, default=None)


def with_rule(rules: list[dict[str, Any]], days: int) -> list[dict[str, Any]]:
    """The rules with ours, and all others as they were.  Ours is written in the form that they have: some
    servers take no mixture of the old one (`Prefix`) and the new one (`Filter`).
    """
    others = [rule for rule in rules if rule.get("ID") != RULE]
    everything: dict[str, Any] = {"Prefix": ""}
    ours: dict[str, Any] = {"ID": RULE, "Status": "Enabled"}
    ours |= everything if any("Prefix" in rule for rule in others) else {"Filter": everything}
    return [*others, {**ours, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": days}}]


def _is_for_all(rule: dict[str, Any]) -> bool:
    """No filter, or one that every key passes."""
    chosen = rule.get("Filter", {})
    return not rule.get("Prefix") and not any(value for value in chosen.values())


def _listed(policy: dict[str, Any]) -> list[dict[str, Any]]:
    """The policy's statements; one alone may stand without a list."""
    found = policy.get("Statement", [])
    return [found] if isinstance(found, dict) else list(found)
