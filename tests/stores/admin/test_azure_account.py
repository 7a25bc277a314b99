"""Resource group, storage account and container: the management is a fake, the blobs are Azurite's."""

from datetime import UTC, datetime, timedelta

import pytest

from rootcellar.errors import (
    AlreadyExistsError,
    ConfigError,
    DeniedError,
    LockedError,
    NotEmptyError,
    StoreError,
)
from rootcellar.stores.admin import codes
from rootcellar.stores.admin.azure.account import TAG, AccountAdmin, Site, account_name
from rootcellar.stores.admin.azure.keys import Key, by_age, to_replace
from rootcellar.stores.admin.azure.management import CLOUDS, cloud
from rootcellar.stores.admin.provider_config import Rotation
from rootcellar.stores.admin.values import Aspect, BucketWish, Immutability, Outcome
from testbed.azurite import ACCOUNT, KEY, Container
from testbed.server import unique
from tests.stores.admin.contract import SEED, WISH, Contract, Place, fill
from tests.stores.admin.fake_azure_management import FakeAzureManagement
from tests.stores.clouds import Rerouted, Values, azure_store
from tests.stores.places import QUICK

PRINCIPAL = {
    "clientID": "client",
    "clientSecret": "right",
    "tenantID": "tenant",
    "subscriptionID": "subscription",
}
NOW = datetime(2026, 11, 21, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def management():
    with FakeAzureManagement(KEY) as fake:
        yield fake


@pytest.fixture
def container(azurite):
    return Container(unique("account"), azurite.endpoint, None)


@pytest.fixture
def opened(management, container):
    def make(*, principal=PRINCIPAL, **site):
        routes = dict.fromkeys(
            (CLOUDS["AzurePublic"].management, CLOUDS["AzurePublic"].login), management.endpoint
        )
        found = {"account": ACCOUNT, "endpoint": container.endpoint, **site}
        return AccountAdmin(
            Site(container.name, "westeurope", **found),
            Values(dict(principal)),
            backoff=QUICK,
            wire=Rerouted(routes),
        )

    return make


class TestAccount(Contract):
    @pytest.fixture
    def place(self, opened, container):
        return Place(
            opened,
            lambda prefix: azure_store(container, prefix),
            lambda: [info.key for info in azure_store(container).list()],
        )

    def test_no_credentials_are_made_unless_the_provider_says_so(self, made):
        """Here it does: whoever uses the bucket is given the account's key, not our identity."""
        assert made.generated() == {
            "storageAccount": ACCOUNT,
            "storageKey": KEY,
            "domain": "blob.core.windows.net",
        }


def test_an_account_that_nobody_made_yet_has_no_key_to_give(opened):
    assert opened().generated() is None


def test_a_killed_creation_goes_on_where_it_ended(opened, management, container):
    admin = opened()
    for broken in (("PUT", container.name), ("PUT", ACCOUNT)):
        management.break_next = [broken] * 6
        with pytest.raises(StoreError):
            admin.create(WISH)
    management.break_next = []
    assert opened().create(WISH) is Outcome.CREATED
    assert management.groups[container.name]["tags"] == {TAG: container.name}


def test_an_account_in_the_making_is_waited_for(opened, management):
    management.pending = 2
    assert opened().create(WISH) is Outcome.CREATED


def test_an_account_that_is_somebody_elses_is_an_error_with_a_hint(opened, management):
    management.taken.add(ACCOUNT)
    with pytest.raises(AlreadyExistsError, match="somebody else has a storage account") as refused:
        opened().create(WISH)
    assert "whose it is" in refused.value.hint
    assert codes.codes(refused.value) == (codes.CONFIGURATION,)


def test_a_wrong_secret_is_unauthenticated(opened):
    with pytest.raises(DeniedError) as refused:
        opened(principal={**PRINCIPAL, "clientSecret": "wrong"}).look()
    assert codes.codes(refused.value) == (codes.UNAUTHENTICATED,)


def test_a_wrong_subscription_is_no_bucket_gone(opened):
    admin = opened(principal={**PRINCIPAL, "subscriptionID": "other"})
    for call in (admin.look, admin.delete_bucket):
        with pytest.raises(DeniedError, match="subscription is not known") as refused:
            call()
        assert codes.codes(refused.value) == (codes.UNAUTHENTICATED,)


def test_a_principal_without_a_secret_is_told_what_it_lacks(opened):
    with pytest.raises(ConfigError, match="clientSecret"):
        opened(principal={name: value for name, value in PRINCIPAL.items() if name != "clientSecret"}).look()


def test_an_account_is_hardened_as_it_was_wished(opened, management, container):
    admin = opened()
    admin.create(WISH)
    account = management.accounts[container.name, ACCOUNT]
    account["properties"] |= {"supportsHttpsTrafficOnly": False, "allowBlobPublicAccess": True}
    done = admin.harden(WISH, admin.look()).done
    assert [change.aspect for change in done] == [Aspect.PUBLIC_ACCESS, Aspect.TRANSPORT]
    assert account["properties"]["supportsHttpsTrafficOnly"] is True
    assert account["properties"]["allowBlobPublicAccess"] is False


@pytest.mark.parametrize("locked", [False, True])
def test_immutability_is_set_extended_and_locked(opened, management, locked):
    admin = opened()
    admin.create(WISH)
    for days in (4, 6):
        wish = BucketWish(immutability=Immutability(days * DAY, locked=locked))
        assert admin.harden(wish, admin.look()).refused == ()
        assert admin.look().immutability == wish.immutability
        assert admin.harden(wish, admin.look()).done == ()


def test_a_locked_immutability_is_never_weakened(opened):
    admin = opened()
    admin.create(WISH)
    strong = BucketWish(immutability=Immutability(6 * DAY, locked=True))
    admin.harden(strong, admin.look())
    for weaker in (Immutability(4 * DAY, locked=True), Immutability(6 * DAY)):
        told = admin.harden(BucketWish(immutability=weaker, weaken=True), admin.look())
        assert [type(error) for error in told.refused] == [LockedError]
    assert admin.harden(BucketWish(weaken=True), admin.look()).done == ()
    assert admin.look().immutability == strong.immutability


def test_an_unlocked_immutability_goes_only_where_that_is_allowed(opened):
    admin = opened()
    admin.create(WISH)
    admin.harden(BucketWish(immutability=Immutability(6 * DAY)), admin.look())
    assert admin.harden(WISH, admin.look()).done == ()
    assert admin.look().immutability == Immutability(6 * DAY)
    admin.harden(BucketWish(weaken=True), admin.look())
    assert admin.look().immutability is None


def test_what_was_made_for_the_bucket_goes_with_it(opened, management, container):
    admin = opened()
    admin.create(WISH)
    admin.claim(SEED)
    fill(Place(opened, lambda prefix: azure_store(container, prefix), list), "shoot--a/x")
    with pytest.raises(NotEmptyError):
        admin.delete_bucket()
    assert management.accounts
    admin.empty()
    admin.delete_bucket()
    assert (management.groups, management.accounts) == ({}, {})
    admin.delete_bucket()


def test_a_group_with_other_resources_stays(opened, management, container):
    admin = opened()
    admin.create(WISH)
    management.others[container.name] = ["somebody's disk"]
    admin.delete_bucket()
    assert management.accounts == {}
    assert container.name in management.groups


def test_an_account_that_somebody_else_has_come_to_use_stays_with_all_that_is_in_it(
    opened, management, container
):
    admin = opened()
    admin.create(WISH)
    admin.claim(SEED)
    management.containers[ACCOUNT] = ["somebody-s", "another"]
    with pytest.raises(NotEmptyError, match=f"account {ACCOUNT} has other containers, such as somebody-s"):
        admin.delete_bucket()
    assert management.accounts
    assert management.groups
    assert admin.claims() == (SEED,), "nothing of the bucket itself is gone either"
    management.containers.clear()
    admin.delete_bucket()
    assert management.accounts == {}


def test_an_account_that_was_there_before_stays(opened, management, container):
    management.groups[container.name] = {"location": "westeurope"}
    opened().create(WISH)
    del management.accounts[container.name, ACCOUNT]["tags"]
    opened().delete_bucket()
    assert management.accounts
    assert opened().create(WISH) is Outcome.CREATED


def test_names_and_clouds_are_gardeners():
    assert account_name("cloud--azure--fg2d6") == "bkp1b24133158ff059"
    assert cloud(None, "chinaeast2") is CLOUDS["AzureChina"]
    assert cloud(None, "usgovvirginia") is CLOUDS["AzureGovernment"]
    assert cloud(None, "westeurope").blobs == "blob.core.windows.net"
    assert cloud("AzureChina", "westeurope").blobs == "blob.core.chinacloudapi.cn"


# keys


def key(name, age):
    return Key(name, f"value of {name}", None if age is None else NOW - age * DAY)


@pytest.mark.parametrize(
    ("ages", "newest"),
    [((1, 2), "key1"), ((2, 1), "key2"), ((None, 9), "key2"), ((None, None), "key1"), ((3, 3), "key1")],
)
def test_the_newest_key_is_the_one_in_use(ages, newest):
    keys = [key("key2", ages[1]), key("key1", ages[0])]
    assert by_age(keys)[0].name == newest


@pytest.mark.parametrize(
    ("ages", "published", "forced", "replaced"),
    [
        ((1, 9), "key1", False, None),  # young enough
        ((15, 30), "key1", False, "key2"),  # due
        ((15, 30), None, False, "key2"),
        ((None, None), "key1", False, "key2"),  # of unknown age
        ((1, 9), "key1", True, "key2"),  # asked for
        ((15, 30), "key2", False, None),  # an earlier rotation was not published
        ((15, 30), "key2", True, None),
    ],
)
def test_the_older_key_is_made_anew_when_it_is_time(ages, published, forced, replaced):
    keys = [key("key1", ages[0]), key("key2", ages[1])]
    known = published and f"value of {published}"
    found = to_replace(keys, known, Rotation(14 * DAY), NOW, forced=forced)
    assert (found and found.name) == replaced


def test_an_account_with_one_key_is_not_rotated():
    assert to_replace([key("key1", 99)], None, Rotation(2 * DAY), NOW, forced=True) is None


def test_no_key_shows_in_what_is_logged():
    assert "value of" not in repr(key("key1", 1))


def test_a_rotation_that_died_before_it_was_published_is_published_first(opened, management, container):
    admin = opened(rotation=Rotation(2 * DAY))
    admin.create(WISH)
    before = admin.generated()["storageKey"]
    assert admin.rotate(before, NOW)
    after = admin.generated()["storageKey"]
    assert after != before
    assert not opened(rotation=Rotation(2 * DAY)).rotate(before, NOW + 9 * DAY)
    assert opened().generated()["storageKey"] == after
    assert not admin.rotate(after, datetime.now(UTC))
    assert admin.rotate(after, datetime.now(UTC), forced=True)
