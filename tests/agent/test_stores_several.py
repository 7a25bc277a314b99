"""Agents with several stores: what is copied, what is written while the first is away, what is restored."""

from __future__ import annotations

import shutil

import pytest

from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, chains, plan_chain
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from rootcellar.stores.url import open_store
from tests.agent.agents import wait_until
from tests.agent.commands import run
from tests.backup import ebr_rules
from tests.backup.capture_scene import Scene
from tests.backup.plans import restore_members
from tests.stores.proxy import Proxy, Reset


class Place:
    """Three directories, and a configuration of an agent that fills them."""

    def __init__(self, directory):
        self._agent = None
        self.main, self.second = directory / "main", directory / "second"
        self.standby = directory / "standby-of-second"

    def configure(self, agent, *, main="", second="", schedules="", policy="standby-after: 1s, "):
        self._agent = agent
        text = agent.config.read_text()
        stores = (
            f"stores:\n- {{name: main, url: '{agent.store_url}'{main}}}\n"
            f"- {{name: second, url: 'file://{self.second}', mirror-of: main{second}}}\n"
        )
        text = stores + text.partition("\n")[2]
        text = text.replace("agent: {", f"agent: {{{policy}").replace(
            "schedules: {", f"schedules: {{{schedules}"
        )
        agent.config.write_text(text)
        return agent

    def away(self):
        """The first store's directory is gone, and none can be made in its place."""
        with self._agent.held_still():  # it would make the directory anew between the two
            self.main.rename(self.main.with_name("aside"))
            self.main.write_text("no directory")

    def back(self, agent=None):
        with self._agent.held_still():
            self.main.unlink()
            self.main.with_name("aside").rename(self.main)
        if agent is not None:
            agent.ask("/snapshot/delta", "POST")  # nobody waits for the end of a pause


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


@pytest.fixture
def scene(etcd, place):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"first", b"value")
        yield Scene(etcd, "3.6", member, client, FileStore(place.main))


@pytest.fixture
def agent(agents, scene, place):
    return place.configure(agents.make([scene.member.endpoint], f"file://{place.main}"))


def told(agent, role):
    return next(each for each in agent.ask()["stores"] if each["role"] == role)


def wait_mirrored(agent, revision):
    def there():
        found = told(agent, "mirror")
        return (found["revision"] or 0) >= revision and found["behind"] == 0

    wait_until(there, f"revision {revision} in the mirror")


def restored(scene, store):
    member = scene.etcd.make(scene.line)
    restore_members([member], store, keep_history=True)
    member.start()
    return member


def proven(scene, directory):
    """A restore from there has etcd's own state; the last revision of it."""
    store = FileStore(directory)
    catalogue = read_catalogue(store)
    assert (catalogue.damaged, catalogue.lost) == ((), ())
    assert ebr_rules.check_prefix(store) == []
    last = plan_chain(catalogue, Latest()).reach
    scene.must_equal(restored(scene, store), last)
    return last


def test_a_mirror_is_filled_behind_each_capture_and_its_lag_is_told(agent, scene, place):
    agent.start()
    agent.wait_reached(2)
    last = scene.write(5)
    agent.wait_reached(last)
    wait_mirrored(agent, last)
    assert proven(scene, place.second) == last

    def levelled():  # once it has the last delta's proof, too
        text = agent.get("/metrics")
        return all(
            f'rootcellar_store_lag_{each}{{store="second"}} 0.0' in text for each in ("revisions", "seconds")
        )

    wait_until(levelled, "no lag")
    assert not list(FileStore(place.second).list(keys.EPOCHS))
    assert not place.standby.exists()
    shown = run(agent, "status")
    assert [(each["role"], each["behind"]) for each in shown["agent"]["stores"]] == [
        ("first", 0),
        ("mirror", 0),
        ("standby", None),
    ]


def test_a_mirror_that_is_away_is_told_and_costs_captures_nothing(agent, scene, place):
    place.second.write_text("no directory")
    agent.start()
    agent.wait_logged("job-failed", job="mirror-second")
    last = scene.write(5)
    agent.wait_reached(last)
    assert "mirror-second" in agent.ask()["faults"]["job"]
    assert told(agent, "mirror")["revision"] is None
    place.second.unlink()
    wait_mirrored(agent, last)
    wait_until(lambda: agent.ask()["faults"] == {}, "the fault is forgotten")


def test_while_the_first_store_is_away_the_next_has_a_chain_and_the_first_goes_on_when_it_is_back(
    agent, scene, place
):
    agent.start()
    agent.wait_reached(2)
    wait_mirrored(agent, 2)
    place.away()
    scene.write(3)
    agent.wait_logged("standby-begun", store="second-standby")
    last = scene.write(5)
    wait_until(lambda: (told(agent, "standby")["revision"] or 0) >= last, "the standby has it")
    assert told(agent, "standby")["active"]
    assert 'rootcellar_standby_active{store="second-standby"} 1.0' in agent.get("/metrics")
    assert proven(scene, place.standby) == last
    assert read_catalogue(FileStore(place.standby)).epoch.number == 1
    place.back(agent)
    assert agent.wait_logged("standby-ended")["how"] == "continued"
    last = scene.write(5)
    agent.wait_reached(last)
    wait_mirrored(agent, last)
    assert not told(agent, "standby")["active"]
    for directory in (place.main, place.second):
        assert proven(scene, directory) == last
        assert len(chains(read_catalogue(FileStore(directory)), 1)) == 1
    assert agent.terminate() == 0


def test_a_first_store_whose_history_etcd_has_compacted_meanwhile_goes_on_with_a_full(agent, scene, place):
    agent.start()
    agent.wait_reached(2)
    agent.terminate()
    scene.write(5)
    scene.client.compact(scene.write(5))
    place.away()
    agent.start()
    agent.wait_logged("standby-begun")
    wait_until(lambda: (told(agent, "standby")["revision"] or 0) >= scene.client.header().revision, "a full")
    place.back()
    assert agent.wait_logged("standby-ended")["how"] == "full"
    last = scene.write(2)
    agent.wait_reached(last)
    assert proven(scene, place.main) == last


def test_an_agent_that_is_stopped_while_the_first_store_is_away_leaves_all_in_the_next(agent, scene, place):
    agent.start()
    agent.wait_reached(2)
    place.away()
    scene.write(2)
    agent.wait_logged("standby-begun")
    wait_until(lambda: told(agent, "standby")["revision"], "a first full there")
    last = scene.write(7)
    assert agent.terminate() == 0
    assert proven(scene, place.standby) == last


def test_an_s3_store_that_drops_every_connection_is_stood_in_for(agents, etcd, bucket, place):
    member = etcd.start("3.6")
    port = int(bucket.endpoint.rpartition(":")[2])
    with EtcdClient([member.endpoint]) as client, Proxy(port) as proxy:
        client.put(b"first", b"value")
        url = f"s3://{bucket.name}/several?endpoint={proxy.endpoint}&region={bucket.region}"
        names = {"AWS_ACCESS_KEY_ID": bucket.access_key, "AWS_SECRET_ACCESS_KEY": bucket.secret_key}
        agent = place.configure(agents.make([member.endpoint], url, **names)).start()
        agent.wait_reached(2)
        proxy.always(lambda _request: Reset())
        last = client.put(b"second", b"value").revision
        agent.wait_logged("standby-begun")
        wait_until(lambda: (told(agent, "standby")["revision"] or 0) >= last, "the standby has it")
        proxy.always(lambda _request: None)
        agent.wait_logged("standby-ended")
        wait_mirrored(agent, last)
        assert agent.terminate() == 0
        assert plan_chain(read_catalogue(FileStore(place.second)), Latest()).reach == last


def test_each_store_keeps_what_its_own_retention_says(agents, scene, place):
    agent = place.configure(
        agents.make([scene.member.endpoint], f"file://{place.main}"),
        main=", retention: {limit: 3}",
        second=", retention: {limit: 1}",
        schedules="prune: {cron: '*/2 * * * * *'}, ",
    )
    agent.start()
    agent.wait_reached(2)
    for _ in range(4):
        scene.write(1)
        agent.ask("/snapshot/full", "POST")
    last = scene.write(1)
    agent.wait_reached(last)
    wait_mirrored(agent, last)

    def fulls(directory):
        return len([each for each in read_catalogue(FileStore(directory)).snapshots if each.is_full])

    wait_until(lambda: (fulls(place.main), fulls(place.second)) == (3, 1), "prunes behind the last full", 100)
    assert proven(scene, place.second) == last


def test_a_restore_without_a_store_reads_the_next_that_can_be_read_and_reaches_further(agent, scene, place):
    agent.start()
    agent.wait_reached(2)
    wait_mirrored(agent, 2)
    place.away()
    last = scene.write(5)
    agent.wait_logged("standby-begun")
    wait_until(lambda: (told(agent, "standby")["revision"] or 0) >= last, "the standby has it")
    agent.kill()
    target = scene.etcd.make(scene.line)
    member = f"{target.name}={target.peer_url}"
    shown = run(agent, "restore", "--data-dir", target.data_dir, "--member", member, "--keep-history")
    assert (shown["revision"], shown["store"]) == (last, f"file://{place.standby}")
    target.start()
    scene.must_equal(target, last)
    listed = run(agent, "ls")
    assert (listed["store"], listed["window"]["last"]) == (f"file://{place.standby}", last)
    place.back()
    assert run(agent, "ls")["store"] == f"file://{place.standby}"
    # The restored cluster is another one; what tells the first store of it lies in the standby's.
    again = agent.config.read_text().replace(scene.member.endpoint, target.endpoint)
    agent.config.write_text(again)
    agent.start()
    agent.wait_logged("restore-known")
    with EtcdClient([target.endpoint]) as client:
        newest = client.put(b"after", b"all").revision
    agent.wait_reached(newest)
    catalogue = read_catalogue(FileStore(place.main))
    assert (catalogue.timelines[-1].number, catalogue.timelines[-1].forked_at) == (2, last)
    wait_mirrored(agent, newest)
    assert run(agent, "ls")["store"] == f"file://{place.main}"
    agent.kill()  # it would write into what is being removed
    shutil.rmtree(place.main)
    assert run(agent, "ls", f"file://{place.second}")["window"]["last"] == newest
    assert open_store(str(place.second)).url
