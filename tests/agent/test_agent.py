"""Agents as processes, through what befalls them.  What is stored is restored, and HashKV compared."""

from __future__ import annotations

import shutil
import signal
import socket
import stat
from contextlib import suppress
from functools import partial
from itertools import pairwise

import pytest

from rootcellar.agent.doorway import AgentError, place
from rootcellar.backup.catalogue import keys
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, chains, plan_chain
from rootcellar.errors import EtcdError
from rootcellar.etcd.client import EtcdClient
from rootcellar.stores.file import FileStore
from tests.agent.agents import wait_until
from tests.agent.commands import run
from tests.backup import ebr_rules
from tests.backup.capture_scene import Scene, Writers
from tests.backup.plans import restore_members


@pytest.fixture
def directory(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def url(directory):
    return f"file://{directory}"


@pytest.fixture
def scene(etcd, directory):
    member = etcd.start("3.6")
    with EtcdClient([member.endpoint]) as client:
        client.put(b"first", b"value")
        yield Scene(etcd, "3.6", member, client, FileStore(directory))


def proven(scene, *more):
    """What is stored agrees, EBR can restore it, and it restores to etcd's own state."""
    catalogue = read_catalogue(scene.store)
    assert (catalogue.damaged, catalogue.lost) == ((), ())
    assert ebr_rules.check_prefix(scene.store) == []
    last = plan_chain(catalogue, Latest()).reach
    scene.must_equal(scene.restored(), last, *more)
    return catalogue, last


def test_an_agent_takes_a_full_then_every_change_and_the_last_ones_when_it_is_told_to_stop(
    agents, scene, url
):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_logged("stored", why="there is no full yet")
    for _ in range(3):
        agent.wait_reached(scene.write(5))
    last = scene.write(5)
    assert agent.terminate() == 0
    assert agent.logged("stopped")[-1]["revision"] == last
    catalogue, reach = proven(scene, last - 7)
    assert reach == last
    assert len(chains(catalogue, 1)) == 1
    assert not place(agent.state, url).exists()


def test_chains_go_on_after_a_restart_whether_it_was_told_or_killed(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    for end in (agent.kill, agent.terminate, agent.kill):
        agent.wait_reached(scene.write(5))
        end()
        scene.write(5)
        agent.start()
    agent.wait_reached(scene.write(5))
    agent.terminate()
    catalogue, _ = proven(scene)
    assert len([each for each in catalogue.snapshots if each.is_full]) == 1
    assert catalogue.epoch.number == 4


def test_an_agent_that_is_killed_again_and_again_while_writers_go_on_loses_nothing(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    with Writers([scene.member.endpoint]) as writers:
        for round_ in range(5):
            wait_until(lambda: agent.doorway is not None and agent.phase() is not None, "an answer")
            writers.more(40 + 37 * round_)
            agent.kill()
            agent.start()
        writers.more(50)
    agent.wait_reached(scene.client.header().revision)
    agent.terminate()
    catalogue, last = proven(scene)
    assert last == scene.client.header().revision
    assert chains(catalogue, 1)[-1].gap is None


def test_commands_beside_a_running_agent_go_through_it(agents, scene, url, monkeypatch):
    agent = agents.start([scene.member.endpoint], url, delta="1h")
    agent.wait_reached(2)
    last = scene.write(3)
    shown = run(agent, "snapshot", "delta")
    assert [each["last"] for each in shown["deltas"]] == [last]
    assert run(agent, "snapshot", "delta")["deltas"] == []
    full = run(agent, "snapshot", "full", "--final")["full"]
    assert full["key"].endswith(".final")
    assert read_catalogue(scene.store).epoch.number == 1
    status = run(agent, "status")
    assert (status["agent"]["revision"], status["agent"]["leads"], status["behind"]) == (last, True, 0)


def test_behind_a_final_full_nothing_is_taken_before_something_changes(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(2)
    key = agent.ask("/snapshot/full?final=true", "POST")["full"]["key"]
    for again in (False, True):
        if again:
            agent.terminate()
            agent.start()
            agent.wait_reached(2)
        before = read_catalogue(scene.store).heartbeat
        wait_until(lambda b=before: read_catalogue(scene.store).heartbeat not in (b, None), "a heartbeat")
        assert len(read_catalogue(scene.store).snapshots) == 2
    last = scene.write(3)
    agent.wait_logged("stored", why=f"{key} was meant to be the last")
    agent.wait_reached(last)
    proven(scene)


def test_http_answers_only_who_knows_the_token(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(2)
    assert agent.get("/healthz") == '{"health":true}'
    wait_until(lambda: agent.phase() == "leader")
    assert '"ready":true' in agent.get("/readyz")
    text = agent.get("/metrics")
    for name in (
        "rootcellar_recovery_point_age_seconds ",
        'rootcellar_agent_state{state="leader"} 1.0',
        "rootcellar_leader 1.0",
        'rootcellar_store_calls_total{verb="put"}',
        'etcdbr_snapshot_latest_revision{kind="Full"} 2.0',
        'rootcellar_expected_interval_seconds{kind="delta"} 1.0',
    ):
        assert name in text, name
    stranger = agent.doorway.__class__(agent.doorway.url, "wrong", url, 1)
    for method, path in (("GET", "/status"), ("POST", "/snapshot/full"), ("POST", "/snapshot/delta")):
        with pytest.raises(AgentError, match="needs the agent's token"):
            stranger.ask(method, path)
    file = place(agent.state, url)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert agent.doorway.token not in agent.log_path.read_text()


def test_an_etcd_that_restarts_is_waited_for_and_nothing_is_lost(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(scene.write(5))
    scene.member.kill()
    agent.wait_phase("waiting-for-etcd")
    scene.member.start()
    scene.wait_connected()
    agent.wait_reached(scene.write(5))
    agent.wait_phase("leader")
    agent.terminate()
    catalogue, _ = proven(scene)
    assert catalogue.epoch.number == 1
    assert len([each for each in catalogue.snapshots if each.is_full]) == 1


def test_an_agent_that_starts_before_etcd_waits_for_it(agents, etcd, url, directory):
    member = etcd.make("3.6")
    agent = agents.start([member.endpoint], url)
    agent.wait_phase("waiting-for-etcd")
    member.start()
    with EtcdClient([member.endpoint]) as client:
        scene = Scene(etcd, "3.6", member, client, FileStore(directory))
        agent.wait_reached(scene.write(3))
        agent.terminate()
        proven(scene)


def test_a_store_that_cannot_be_written_is_told_and_made_up_for(agents, scene, directory, url):
    blocked = directory / "v2"
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(scene.write(3))
    with agent.held_still():  # else what it looks for in between is gone
        blocked.rename(directory / "elsewhere")
        blocked.write_text("in the way")
    last = scene.write(5)
    agent.wait_phase("degraded")
    agent.wait_logged("capture-failed")
    with agent.held_still():
        blocked.unlink()
        (directory / "elsewhere").rename(blocked)
    agent.wait_reached(last)
    agent.wait_phase("leader")
    agent.wait_reached(scene.write(3))
    agent.terminate()
    catalogue, _ = proven(scene)
    assert len([each for each in catalogue.snapshots if each.is_full]) == 1


def test_an_etcd_restored_beneath_a_running_agent_begins_a_new_timeline(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(scene.write(10))
    saved = scene.member.data_dir.parent / "saved"
    scene.member.kill()
    shutil.copytree(scene.member.data_dir, saved)
    scene.member.start()
    scene.wait_connected()
    agent.wait_reached(scene.write(10, value=b"lost"))
    scene.member.kill()
    shutil.rmtree(scene.member.data_dir)
    shutil.copytree(saved, scene.member.data_dir)
    scene.member.start()
    scene.wait_connected()
    last = scene.write(30, value=b"other")
    agent.wait_logged("timeline", timeline=2, parent=1)
    agent.wait_reached(last)
    agent.terminate()
    catalogue, reach = proven(scene, last - 3)
    assert (catalogue.newest_timeline, reach) == (2, last)


def handed_over(client, agents, leading):
    """The agent that leads once its member leads etcd; another than this one.  On a busy machine members also
    elect one without being asked.
    """
    ids = [client.member(endpoint).status().header.member_id for endpoint in client.endpoints]
    own = agents.index(leading)
    with suppress(EtcdError):  # it has just lost its leadership by itself
        member = client.member(client.endpoints[own])
        if member.status().leader == ids[own]:
            member.move_leader(ids[own - 1])
    if leading.phase() != "follower":
        return None
    return next((each for each in agents if each.phase() in ("leader", "capturing")), None)


def test_of_three_members_agents_the_leader_s_writes_and_the_next_goes_on(agents, etcd, url, directory):
    members = etcd.start_cluster("3.6")
    ours = [agents.start([member.endpoint], url) for member in members]
    endpoints = [member.endpoint for member in members]
    with EtcdClient(endpoints) as client, Writers(endpoints[:1]) as writers:
        leading = wait_until(lambda: next((a for a in ours if a.reached()), None), "a leader")
        for _ in range(2):
            writers.more(60)
            leading = wait_until(partial(handed_over, client, ours, leading), "another leader's agent")
        writers.more(60)
        last = client.header().revision
        wait_until(lambda: max(agent.reached() for agent in ours) >= last, f"revision {last}")
    for agent in ours:
        assert agent.terminate() == 0
    store = FileStore(directory)
    assert ebr_rules.check_prefix(store) == []
    catalogue = read_catalogue(store)
    reach = plan_chain(catalogue, Latest()).reach
    assert reach >= last
    assert len([each for each in catalogue.snapshots if each.is_full]) == 1
    restored = etcd.make("3.6", "restored")
    restore_members([restored], store, None, keep_history=True)
    restored.start()
    for revision in (reach, last - 50):
        assert restored.hash_kv(revision) == members[0].hash_kv(revision)


def test_two_agents_on_one_prefix_paused_at_any_time_leave_it_restorable(agents, scene, url):
    """Both believe that they lead, as after a pause that no lock survives."""
    one, other = (agents.make([scene.member.endpoint], url, "--lead", "always") for _ in range(2))
    one.start()
    one.wait_reached(2)
    with Writers([scene.member.endpoint]) as writers:
        for _ in range(3):
            writers.more(25)
            one.signal(signal.SIGSTOP)
            if other.process is None or other.process.poll() is not None:
                other.start()
            else:
                other.signal(signal.SIGCONT)
            writers.more(25)
            wait_until(lambda a=other: a.phase() is not None, "an answer")
            writers.more(50)
            one.signal(signal.SIGCONT)
            writers.more(25)
            restorable(scene)
            one, other = other, one
        one.signal(signal.SIGCONT)
        other.signal(signal.SIGCONT)
        writers.more(40)
    last = scene.client.header().revision
    wait_until(lambda: max(one.reached(), other.reached()) >= last, "both", 90)
    one.terminate()
    other.terminate()
    proven(scene, last - 20)


def restorable(scene):
    """Whatever two writers do at this moment, there is a chain, and nothing in it contradicts."""
    catalogue = read_catalogue(scene.store)
    assert catalogue.damaged == ()
    assert plan_chain(catalogue, Latest()).reach >= 2


def test_an_agent_without_a_store_captures_nothing_and_says_so(agents, scene):
    agent = agents.start([scene.member.endpoint], None)
    agent.wait_phase("leader")
    with pytest.raises(AgentError, match="it has no store"):
        agent.ask("/snapshot/full", "POST")
    assert agent.terminate() == 0


def test_a_foreign_prefix_is_refused_for_as_long_as_it_is_foreign(agents, scene, etcd, url):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(2)
    agent.terminate()
    stranger = etcd.start("3.6", "stranger")
    stranger.etcdctl("put", "a", "b")
    theirs = agents.start([stranger.endpoint], url)
    assert "cluster" in theirs.wait_logged("capture-failed", fault="foreign")["error"]
    assert theirs.phase() == "degraded"
    theirs.terminate()
    assert read_catalogue(scene.store).epoch.number == 1
    proven(scene)


def test_a_command_that_took_over_is_followed_by_the_agent_again(agents, scene, url, tmp_path):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(scene.write(3))
    scene.write(3)
    run(agent, "snapshot", "delta", "--state-dir", str(tmp_path / "elsewhere"))
    scene.write(3)
    agent.wait_logged("capture-failed", fault="fenced")
    agent.wait_reached(scene.write(3))
    agent.terminate()
    proven(scene)


def test_hangup_reads_the_configuration_again(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url, delta="1h")
    agent.wait_reached(2)
    agent.write_config([scene.member.endpoint], delta="1s")
    agent.signal(signal.SIGHUP)
    agent.wait_logged("reloaded")
    agent.wait_reached(scene.write(3))
    agent.config.write_text("nonsense: true\n")
    agent.signal(signal.SIGHUP)
    agent.wait_logged("reload-failed")
    agent.wait_reached(scene.write(3))
    agent.terminate()
    proven(scene)


def test_a_store_that_cannot_be_opened_at_a_reload_leaves_everything_as_it_was(agents, scene, url, tmp_path):
    """Above all retention: rules for the other store must not be carried out in this one."""
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(scene.write(3))
    before = agent.ask()
    agent.config.write_text(
        f"stores: [{{name: other, url: 's3://other/x?region=eu', retention: {{limit: 1}},"
        f" credentials: {{dir: '{tmp_path / 'missing'}'}}}}]\n"
        f"etcd: {{endpoints: ['{scene.member.endpoint}']}}\n"
        f"schedules: {{delta: {{every: 1h}}, prune: {{cron: '* * * * *'}}}}\n"
        f"agent: {{poll: 1s, state-dir: '{agent.state}'}}\n"
    )
    agent.signal(signal.SIGHUP)
    agent.wait_logged("reload-failed")
    agent.wait_logged("session", count=2)
    after = agent.ask()
    for name in ("store", "expectedIntervals"):
        assert after[name] == before[name]
    assert "prune" not in {each["name"] for each in after["schedules"]}
    agent.wait_reached(scene.write(3))


def test_check_config_asks_nobody(agents, url):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{free.getsockname()[1]}"
        agent = agents.make([endpoint], url, "--check-config").start()
        assert agent.process.wait(60) == 0
    assert "deltas every 1 s" in agent.log_path.read_text()
    agent.write_config([endpoint], delta="1ms")
    assert agent.start().process.wait(60) == 12


def test_heartbeats_go_on_over_a_quiet_etcd(agents, scene, url):
    agent = agents.start([scene.member.endpoint], url)
    agent.wait_reached(2)
    first = wait_until(lambda: read_catalogue(scene.store).heartbeat, "a heartbeat")
    wait_until(lambda: read_catalogue(scene.store).heartbeat.time > first.time, "another")
    agent.terminate()
    beats = [info.key for info in scene.store.list(keys.HEARTBEATS)]
    assert len(beats) == 1
    assert all(one < two for one, two in pairwise(beats))
