"""A real etcd, backed up into fake-gcs-server and restored; writers killed on the way."""

import random

import pytest

from rootcellar.errors import NotFoundError
from rootcellar.stores import open_store
from testbed.gcs_fake_uploads import FakeUploads
from tests.backup.capture_scene import a_scene
from tests.stores.clouds import gcs_store
from tests.stores.places import QUICK, keys_of
from tests.stores.scripts import run_script


def test_an_etcd_comes_back_from_google(etcd, fake_gcs):
    bucket = fake_gcs.new_bucket()
    url = f"gs://{bucket.name}/shoot/etcd-main?endpoint={bucket.endpoint}&part-size=1MiB"
    with a_scene(etcd, "3.6", open_store(url, backoff=QUICK)) as scene:
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
    from rootcellar.stores import open_store
    from rootcellar.stores.gcs import upload

    url, moment = sys.argv[1:]
    send = upload.Upload._send_range
    def killed(self, session, position, body, total):
        if total != "*" and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        answer = send(self, session, position, body, total)
        if total != "*":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    upload.Upload._send_range = killed
    open_store(url).put("key", [b"x" * (5 << 20), b"y"])
"""


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_killed_upload_is_there_whole_or_not_at_all(fake_gcs, moment):
    with FakeUploads(fake_gcs) as front:
        bucket = front.new_bucket()
        url = f"gs://{bucket.name}/etcd?endpoint={bucket.endpoint}&part-size=5MiB"
        done = run_script(KILLED, url, moment)
        assert done.returncode == -9, done.stderr
        store = gcs_store(bucket, "etcd")
        if moment == "after":
            assert b"".join(store.get("key")) == b"x" * (5 << 20) + b"y"
            return
        assert keys_of(store.list()) == []
        with pytest.raises(NotFoundError):
            store.stat("key")
        assert len(front.unfinished()) == 1  # which Google drops a week later
