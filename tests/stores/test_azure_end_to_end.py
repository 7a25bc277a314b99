"""A real etcd, backed up into Azurite and restored; writers killed on the way."""

import random

import pytest

from rootcellar.errors import NotFoundError
from rootcellar.stores import open_store
from testbed.azurite import ACCOUNT, KEY
from tests.backup.capture_scene import a_scene
from tests.stores.clouds import Values, azure_store
from tests.stores.conformance import content
from tests.stores.places import QUICK, SMALL_PART, keys_of
from tests.stores.scripts import run_script


@pytest.fixture
def container(azurite):
    return azurite.new_container()


def test_an_etcd_comes_back_from_azure(etcd, container):
    url = f"azure:///{container.name}/shoot/etcd-main?endpoint={container.endpoint}&part-size=1MiB"
    keys = Values({"storageAccount": ACCOUNT, "storageKey": KEY})
    with a_scene(etcd, "3.6", open_store(url, credentials=keys, backoff=QUICK)) as scene:
        for number in range(60):
            scene.client.put(b"bulk%d" % number, random.Random(number).randbytes(40_000))
        scene.full()
        middle = scene.write(20)
        scene.capture()
        last = scene.write(20, b"later")
        scene.capture()
        scene.must_equal(scene.restored(), middle, last)
        scene.must_equal(scene.restored(middle), middle)


KILLED = """
    import os, signal, sys
    from rootcellar.stores import EnvironmentCredentials, open_store
    from rootcellar.stores.azure import client

    url, key, moment = sys.argv[1:]
    send = client.Client.send
    def killed(self, *arguments, **named):
        last = (named.get("query") or {}).get("comp") == "blocklist"
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = send(self, *arguments, **named)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    client.Client.send = killed
    os.environ["T_STORAGE_KEY"] = key
    store = open_store(url, credentials=EnvironmentCredentials("T_"))
    store.put("key", [b"x" * (5 << 20), b"y"])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_upload_is_there_whole_or_not_at_all(container, moment):
    url = f"azure://{ACCOUNT}/{container.name}/etcd?endpoint={container.endpoint}&part-size=5MiB"
    done = run_script(KILLED, url, KEY, moment)
    assert done.returncode == -9, done.stderr
    store = azure_store(container, "etcd")
    if moment == "after":
        assert b"".join(store.get("key")) == b"x" * (5 << 20) + b"y"
        return
    assert keys_of(store.list()) == []
    with pytest.raises(NotFoundError):
        store.stat("key")
    body = content(2 * SMALL_PART)  # its blocks are in nobody's way
    store.put("key", [body])
    assert b"".join(store.get("key")) == body
