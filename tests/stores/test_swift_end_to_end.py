"""A real etcd, backed up into a real Swift and restored, also from what etcd-backup-restore leaves there."""

import random

from rootcellar.stores import open_store
from tests.backup.capture_scene import a_scene
from tests.stores.places import QUICK, keys_of
from tests.stores.swift_place import Login, segments_in


def test_an_etcd_comes_back_from_swift(etcd, container):
    url = f"swift://{container.name}/shoot/etcd-main?auth={container.auth}&part-size=1MiB"
    store = open_store(url, credentials=Login(container), backoff=QUICK)
    with a_scene(etcd, "3.6", store) as scene:
        for number in range(60):
            scene.client.put(b"bulk%d" % number, random.Random(number).randbytes(40_000))
        scene.full()
        middle = scene.write(20)
        scene.capture()
        last = scene.write(20, b"later")
        scene.capture()
        assert len(segments_in(container)) > 1
        scene.must_equal(scene.restored(), middle, last)
        scene.must_equal(scene.restored(middle), middle)


def test_an_etcd_comes_back_from_dynamic_large_objects(etcd, container):
    """What etcd-backup-restore makes of every object: segments beside a manifest of no bytes."""
    url = f"swift://{container.name}/shoot/etcd-main?auth={container.auth}"
    store = open_store(url, credentials=Login(container), backoff=QUICK)
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(50)
        scene.full()
        last = scene.write(20)
        scene.capture()
        snapshots = [key for key in keys_of(store.list("v2/")) if "Full-" in key or "Incr-" in key]
        assert len(snapshots) == 2
        for key in snapshots:
            body = container.ask("GET", f"shoot/etcd-main/{key}")
            name = f"shoot/etcd-main/{key}"
            cuts = [body[start : start + 700] for start in range(0, len(body), 700)]
            for number, part in enumerate(cuts, 1):
                container.ask("PUT", f"{name}/{number:010d}", part)
            container.ask("PUT", name, headers={"X-Object-Manifest": f"{container.name}/{name}"})
        scene.must_equal(scene.restored(), last)
