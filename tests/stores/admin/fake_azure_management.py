"""A fake of Azure's management on loopback: one subscription with resource groups, storage accounts, their
keys and the immutability policies of their containers.

Written after Azure's REST references, and never held against the real thing.  The blobs themselves are
Azurite's, whose key is the first key of every account.
"""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime

from tests.stores.fake_clouds import FakeService, as_json

_PATH = re.compile(
    r"/subscriptions/(?P<subscription>[^/]+)/resourceGroups/(?P<group>[^/]+)"
    r"(?P<listing>/resources)?"
    r"(?:/providers/Microsoft\.Storage/storageAccounts/(?P<account>[^/]+)"
    r"(?P<deed>/listKeys|/regenerateKey)?"
    r"(?P<containers>/blobServices/default/containers)?"
    r"(?:/blobServices/default/containers/(?P<container>[^/]+)/immutabilityPolicies/default"
    r"(?P<change>/extend|/lock)?)?)?"
)


def refused(status, code, message="So said a fake."):
    return as_json(status, {"error": {"code": code, "message": message}})


class FakeAzureManagement(FakeService):
    def __init__(self, key, *, pending=0):
        super().__init__()
        self.key = key
        self.pending = pending  # times that a new account is said to be in the making
        self.groups = {}
        self.accounts = {}
        self.policies = {}
        self.others = {}  # group -> names of resources that are nobody's business
        self.containers = {}  # account -> names of containers beside the bucket's
        self.taken = set()
        self.made = 0
        self.break_next = []  # (method, end of the path): answered with a broken connection's status

    def answer(self, method, path, query, headers, body):  # noqa: PLR0911 - one for each thing it knows
        if path.endswith("/oauth2/v2.0/token"):
            if b"client_secret=right" not in body:
                error = {"error": "invalid_client", "error_description": "So said a fake."}
                return as_json(401, error)
            return as_json(200, {"access_token": "token", "expires_in": 3600})
        if headers.get("Authorization") != "Bearer token":
            return refused(401, "InvalidAuthenticationToken")
        found = _PATH.fullmatch(path).groupdict()
        if found["subscription"] != "subscription":
            return refused(404, "SubscriptionNotFound")
        for each in self.break_next:
            if method == each[0] and path.endswith(each[1]):
                self.break_next.remove(each)
                return refused(503, "ServerBusy")
        said = json.loads(body) if body else {}
        if found["account"] is None:
            return self._on_group(method, found, said)
        if found["container"] is not None:
            return self._on_policy(method, found, said, headers)
        return self._on_account(method, found, said)

    def _on_group(self, method, found, said):
        name = found["group"]
        if found["listing"]:
            names = [each for group, each in self.accounts if group == name] + self.others.get(name, [])
            return as_json(200, {"value": [{"name": each} for each in names]})
        if method == "PUT":
            self.groups[name] = said
            return as_json(201, said)
        if name not in self.groups:
            return refused(404, "ResourceGroupNotFound")
        if method == "DELETE":
            del self.groups[name]
            self.accounts = {each: kept for each, kept in self.accounts.items() if each[0] != name}
            return 202, {}, b""
        return as_json(200, self.groups[name])

    def _on_account(self, method, found, said):  # noqa: PLR0911 - one for each thing it knows
        place = found["group"], found["account"]
        if method == "PUT":
            return self._made_account(place, said)
        account = self.accounts.get(place)
        if account is None:
            return refused(404, "ResourceNotFound")
        if found["deed"] == "/listKeys":
            return as_json(200, {"keys": account["keys"]})
        if found["containers"]:
            names = [found["group"], *self.containers.get(found["account"], [])]
            return as_json(200, {"value": [{"name": each} for each in names]})
        if found["deed"] == "/regenerateKey":
            key = next(each for each in account["keys"] if each["keyName"] == said["keyName"])
            self.made += 1
            key |= {"value": f"bmV3{self.made:04}", "creationTime": datetime.now(UTC).isoformat()}
            return as_json(200, {"keys": account["keys"]})
        if method == "DELETE":
            del self.accounts[place]
            return 200, {}, b""
        if method == "PATCH":
            account["properties"] |= said["properties"]
        elif account["pending"] > 0:
            account["pending"] -= 1
            return as_json(200, {**account, "properties": {"provisioningState": "Creating"}})
        return as_json(200, account)

    def _made_account(self, place, said):
        if place[0] not in self.groups:
            return refused(404, "ResourceGroupNotFound")
        if place[1] in self.taken:
            return refused(409, "StorageAccountAlreadyTaken")
        keys = [
            {"keyName": "key1", "value": self.key, "creationTime": "2026-11-01T00:00:00+00:00"},
            {"keyName": "key2", "value": "b2xkZXI=", "creationTime": "2026-10-01T00:00:00+00:00"},
        ]
        properties = {**said["properties"], "provisioningState": "Succeeded"}
        self.accounts[place] = {**said, "properties": properties, "keys": keys, "pending": self.pending}
        return 202, {}, b""

    def _on_policy(self, method, found, said, headers):
        place = found["account"], found["container"]
        policy = self.policies.get(place)
        if method == "GET":
            nothing = {"properties": {"immutabilityPeriodSinceCreationInDays": 0, "state": "Unlocked"}}
            return as_json(200, policy or nothing)
        if policy and headers.get("If-Match") != policy["etag"]:
            return refused(412, "PreconditionFailed")
        locked = bool(policy) and policy["properties"]["state"] == "Locked"
        if method == "DELETE":
            if locked:
                return refused(409, "ImmutabilityPolicyDeleteOnLockedPolicy")
            self.policies.pop(place, None)
            return as_json(200, {})
        if found["change"] == "/lock":
            policy["properties"]["state"] = "Locked"
        else:
            days = said["properties"]["immutabilityPeriodSinceCreationInDays"]
            before = policy["properties"]["immutabilityPeriodSinceCreationInDays"] if policy else 0
            if locked and (found["change"] != "/extend" or days < before):
                return refused(409, "ContainerImmutabilityPolicyFailure")
            state = "Locked" if locked else "Unlocked"
            policy = {"properties": {"immutabilityPeriodSinceCreationInDays": days, "state": state}}
            self.policies[place] = policy
        self.made += 1
        policy["etag"] = f'"{self.made}"'
        return as_json(200, policy)
