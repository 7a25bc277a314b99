"""What an agent proves, when, and what it does about what it finds."""

from __future__ import annotations

import asyncio
import io
import signal
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from rootcellar.agent.jobs import Errand, Job
from rootcellar.agent.journal import Damage, Journal, ProofSeen
from rootcellar.agent.proving import Proving
from rootcellar.agent.schedule import Cron
from rootcellar.agent.state import Fault, Phase
from rootcellar.backup.capture.proof import prove_upload
from rootcellar.backup.capture.publisher import utc_now
from rootcellar.backup.catalogue import documents, keys, names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.backup.catalogue.records import Check
from rootcellar.backup.objects import codecs, delta
from rootcellar.bolt.append import Transaction
from rootcellar.errors import NothingToRestoreError, ProofError, TransientError
from rootcellar.logs import make_log
from rootcellar.stores.decorator import StoreDecorator
from rootcellar.stores.file import FileStore
from tests.agent.agents import wait_until
from tests.agent.commands import run
from tests.agent.stay import Stay
from tests.agent.test_jobs import Life
from tests.backup.capture_scene import a_scene
from tests.backup.histories import stored

HOURLY = Cron("0 * * * *")


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        scene.write(5)
        yield scene


def flip(store, key):
    """The same size, other bytes."""
    raw = bytearray(b"".join(store.get(key)))
    raw[len(raw) // 2] ^= 1
    store.put(key, [bytes(raw)])


class Damaging(StoreDecorator):
    """A store that loses a bit of the first objects of a kind: what it was given is not what it has."""

    def __init__(self, inner, kind, times=1):
        super().__init__(inner)
        self.kind, self.times = kind, times
        self.harmed = []

    def put(self, key, chunks, *, condition=None):
        info = self.inner.put(key, chunks, condition=condition)
        if key.startswith(f"v2/{self.kind}") and len(self.harmed) < self.times:
            self.harmed.append(key)
            flip(self.inner, key)
        return info


def test_a_damaged_delta_is_told_and_followed_by_a_full(scene, store):
    stay = Stay(scene, Damaging(store, "Incr"))
    stay.run(
        lambda stay: stay.journal.full.count == 2 and stay.journal.uploads["passed"] == 2,
        lambda stay: stay.journal.uploads["passed"] == 1,
    )

    (told,) = stay.logged("upload-damaged")
    assert (told["level"], told["check"]) == ("error", "hash")
    assert "a full is taken in its place" in told["hint"]
    degraded = [each["reason"] for each in stay.logged("state") if each["state"] == Phase.DEGRADED]
    assert told["detail"] in degraded
    assert Fault.DAMAGED not in stay.board.facts.faults
    assert "as was sent" in stay.logged("stored")[-1]["why"]
    assert stay.journal.uploads == {"passed": 2, "failed": 1}
    catalogue = read_catalogue(store)
    assert [proof.failed.check for proof in catalogue.proofs if proof.failed] == [Check.HASH]
    assert plan_chain(catalogue, Latest()).full.last == scene.client.header().revision
    scene.must_equal(scene.restored(), scene.client.header().revision)


def test_a_damaged_full_is_followed_by_another_and_not_by_a_storm_of_them(scene, store):
    stay = Stay(scene, Damaging(store, "Full", times=9))
    stay.run(
        lambda stay: stay.journal.delta.count >= 2,
        lambda stay: stay.journal.uploads["failed"] == 2,
        lambda stay: stay.journal.delta.count >= 1,
    )

    assert stay.journal.full.count == 2, "the next one is a quarter of an hour away"
    assert stay.journal.uploads["failed"] == 2
    assert stay.journal.failures == {}, "no capture has failed"
    assert Fault.DAMAGED in stay.board.facts.faults


def test_damage_that_was_found_before_a_restart_is_made_good_behind_it(scene, store):
    scene.capture(full=True)
    scene.write()
    delta = scene.capture().deltas[0]
    flip(store, delta.key)
    prove_upload(store, delta, utc_now)

    stay = Stay(scene, store)
    stay.run(lambda stay: stay.journal.full.count == 1 and stay.journal.damage is None)
    assert "as was sent" in stay.logged("stored")[-1]["why"]

    again = Stay(scene, store)
    again.run(lambda stay: stay.journal.point is not None)
    assert again.journal.full.count == 0, "the full has made good for it"


def test_where_a_proof_cannot_be_filed_the_capture_stands_and_that_is_told(scene, store):
    class Blind(StoreDecorator):
        def stat(self, key, *, version=None):
            if key.startswith("v2/"):
                raise TransientError(f"{key}: no answer")
            return self.inner.stat(key, version=version)

    stay = Stay(scene, Blind(store))
    stay.run(lambda stay: stay.journal.uploads["unfiled"] == 1)
    assert stay.journal.full.count == 1
    assert stay.logged("upload-not-proven")[0]["key"].startswith("v2/Full")
    assert stay.board.facts.faults == {}
    assert read_catalogue(store).proofs == ()


# On schedules


@contextmanager
def errand(scene, job, tick=None):
    log = make_log("json", io.StringIO())
    yield Errand(tick or datetime.now(UTC), scene.client, scene.store, "tests/1", log, job.name)


def carried_out(scene, job, tick=None):
    with errand(scene, job, tick) as each:
        return asyncio.run(job.run(each))


@pytest.mark.parametrize(
    ("level", "strongest"), [(2, Check.HASH), (3, Check.STRUCTURE), (4, Check.REPLAYED), (5, Check.BOOTED)]
)
def test_each_level_proves_the_newest_chain_as_far_as_it_says(scene, etcd, level, strongest):
    scene.capture(full=True)
    scene.write()
    scene.capture()
    journal = Journal()
    job = Proving(lambda: journal, etcd=scene.member.programs.etcd).job("proof", HOURLY, level)
    told = carried_out(scene, job)

    assert told.endswith(strongest.value) or strongest is Check.REPLAYED
    assert strongest in journal.proofs
    assert max(journal.proofs, key=list(Check).index) is strongest
    assert job.since() == journal.proofs[strongest].at == read_catalogue(scene.store).proofs[-1].finished_at
    assert job.proves is strongest


def test_a_tick_that_a_stronger_proof_has_served_is_left_out(scene):
    scene.capture(full=True)
    journal = Journal()
    proving = Proving(lambda: journal)
    hashes, replay = (proving.job(name, HOURLY, level) for name, level in (("hash", 2), ("replay", 4)))
    tick = datetime.now(UTC)
    carried_out(scene, replay, tick)

    assert carried_out(scene, hashes, tick) == "a proof that says as much was made since"
    assert "hash" in carried_out(scene, hashes, tick + timedelta(hours=1))
    assert "replayed" in carried_out(scene, replay, tick + timedelta(hours=1))
    assert len(read_catalogue(scene.store).proofs) == 3


def test_before_the_first_full_there_is_nothing_to_prove_and_behind_it_a_loss_is_told(scene):
    journal = Journal()
    job = Proving(lambda: journal).job("replay", HOURLY, 4)
    assert carried_out(scene, job) == "there is no full yet"
    assert journal.proofs == {}
    capture = scene.capture(full=True)
    journal.captured(capture.full)
    for key in [each.key for each in read_catalogue(scene.store).snapshots]:
        scene.store.delete(key)
    with pytest.raises(NothingToRestoreError):
        carried_out(scene, job)


def test_a_proof_of_a_time_to_come_serves_no_tick(scene):
    scene.capture(full=True)
    journal, late = Journal(), datetime.now(UTC) + timedelta(days=365)
    journal.proofs[Check.HASH] = ProofSeen("hash", 1, late)
    job = Proving(lambda: journal).job("hash", HOURLY, 2)
    assert "hash" in carried_out(scene, job)
    assert journal.proofs[Check.HASH].at < late


def test_proofs_take_turns_because_two_would_want_the_same_room(scene, monkeypatch):
    scene.capture(full=True)
    journal = Journal()
    proving = Proving(lambda: journal)
    under_way, most = [], []

    def slow(*_arguments):
        under_way.append(1)
        most.append(len(under_way))
        under_way.pop()
        raise TransientError("away")

    monkeypatch.setattr("rootcellar.agent.proving.prove", slow)
    jobs = [proving.job(f"proof-{level}", HOURLY, level) for level in (2, 3, 4)]

    async def all_at_once():
        now = datetime.now(UTC)
        log = make_log("json", io.StringIO())
        errands = [Errand(now, scene.client, scene.store, "tests/1", log, job.name) for job in jobs]
        return await asyncio.gather(
            *(job.run(each) for job, each in zip(jobs, errands, strict=True)), return_exceptions=True
        )

    assert [type(each) for each in asyncio.run(all_at_once())] == [TransientError] * 3
    assert most == [1, 1, 1]


def test_damage_that_a_schedule_finds_is_remembered_until_a_full_makes_good_for_it(scene, store):
    full = scene.capture(full=True).full
    flip(store, full.key)
    journal = Journal()
    job = Proving(lambda: journal).job("proof-hash", HOURLY, 2)
    with pytest.raises(ProofError, match="hash failed"):
        carried_out(scene, job)
    assert list(journal.failing) == [Check.HASH]
    assert journal.damage == Damage(journal.failing[Check.HASH], full.record.last_revision)


def test_a_gap_that_a_replay_finds_is_filed_and_a_full_makes_good_for_it(scene, store):
    scene.capture(full=True)
    scene.write(3)
    held = scene.capture().deltas[0]
    payload = codecs.hash_tail(codecs.decompress(store.get(held.key), names.GZIP))
    events = [each for some in delta.decode(payload) for each in some]
    store.delete(keys.record(held.snapshot.name))
    store.put(held.key, [stored(events[1:])])
    journal = Journal()

    with pytest.raises(ProofError, match=r"structure failed: .*begins at revision"):
        carried_out(scene, Proving(lambda: journal).job("proof-replay", HOURLY, 4))

    assert [each.failed.check for each in read_catalogue(store).proofs if each.failed] == [Check.STRUCTURE]
    assert list(journal.failing) == [Check.STRUCTURE]
    assert journal.damage == Damage(journal.failing[Check.STRUCTURE], held.record.last_revision)


def test_what_etcd_does_not_start_on_is_filed_beside_what_was_proven_of_it(scene, store, tmp_path):
    held = scene.capture(full=True).full
    path = tmp_path / "db"
    path.write_bytes(b"".join(codecs.hash_tail(codecs.decompress(store.get(held.key), names.GZIP))))
    with Transaction(path) as edit:
        edit.replace(b"auth", [(b"authEnabled", b"\x01"), (b"authRevision", bytes(7) + b"\x02")])
        edit.replace(b"authUsers", [(b"root", b"\xff\xff\xff")])
        edit.commit(both_metas=True)
    store.delete(keys.record(held.snapshot.name))
    store.put(held.key, codecs.compress(codecs.append_hash([path.read_bytes()]), names.GZIP))
    journal = Journal()
    job = Proving(lambda: journal, etcd=scene.member.programs.etcd).job("proof-boot", HOURLY, 5)

    with pytest.raises(ProofError, match=r"booted failed: etcd .* ended over it: .*unmarshal"):
        carried_out(scene, job)

    (filed,) = (each for each in read_catalogue(store).proofs if not each.in_passing)
    assert filed.failed.check is Check.BOOTED
    assert filed.passed(Check.REPLAYED)
    assert list(journal.failing) == [Check.BOOTED]
    assert (journal.damage, journal.proof, job.since()) == (None, None, None)


def test_a_proof_that_failed_stands_until_its_next_tick():
    life = Life(3 * 3600)
    ticks = []

    async def run(errand):
        ticks.append(errand.tick.hour)
        if len(ticks) == 2:
            raise ProofError("hash failed: a bit is another", hint="take a full")
        return "passed"

    seen = []
    sleep = life.sleep

    async def watched(seconds):
        seen.append(Fault.PROOF in life.board.facts.faults)
        await sleep(seconds)

    life.sleep = watched
    diary = life.run(Job("proof-hash", HOURLY, run, proves=Check.HASH))
    assert ticks == [10, 11, 12]
    assert (diary.runs, diary.failures) == (3, 1)
    assert (seen[0], any(seen), seen[-1]) == (False, True, False)
    (told,) = [each for each in life.events if each["event"] == "proof-failed"]
    assert (told["job"], told["hint"]) == ("proof-hash", "take a full")


# As a process


def configured(agent, extra):
    text = agent.config.read_text()
    agent.config.write_text(text.replace("schedules: {", f"schedules: {{{extra}, "))
    return agent


LEVELS = "hash: {cron: '0 * * * *'}, structure: {cron: '0 2 * * *', jitter: 5m}, replay: {cron: '0 3 * * *'}"


def test_each_level_has_a_schedule_of_its_own(agents, scene, store):
    agent = agents.make([scene.member.endpoint], store.url)
    configured(agent, f"proofs: {{{LEVELS}, boot: {{cron: '0 4 * * 0', suspend: true}}}}").start()
    agent.wait_reached(scene.client.header().revision)
    shown = {each["name"]: each for each in agent.ask()["schedules"]}
    names = {f"proof-{level}" for level in ("hash", "structure", "replay", "boot")}
    assert names <= set(shown)
    wait_until(lambda: any(e["suspended"] for e in agent.ask()["schedules"]), "the suspended one")
    text = agent.get("/metrics")
    # By the strongest check of each: one that is late is told once.
    for check, seconds in {"hash": 3600, "structure": 86400, "replayed": 86400}.items():
        assert f'rootcellar_expected_proof_interval_seconds{{check="{check}"}} {float(seconds)}' in text
    for check in ("listed", "booted"):
        assert f'rootcellar_expected_proof_interval_seconds{{check="{check}"}}' not in text
    wait_until(lambda: agent.ask()["uploads"]["proven"] == 1, "a proof of the first full")
    assert 'rootcellar_upload_proofs_total{result="passed"} 1.0' in agent.get("/metrics")
    assert agent.terminate() == 0


def test_a_proof_that_was_missed_while_the_agent_was_down_is_made_up_for(agents, scene, store):
    scene.capture(full=True)
    journal = Journal()
    carried_out(scene, Proving(lambda: journal).job("proof-hash", HOURLY, 2))
    old = read_catalogue(store).proofs[0]
    # As if it had been made two years ago.
    (path,) = [each.key for each in store.list("catalogue/proofs/")]
    ago = old.finished_at - timedelta(days=730)
    store.put(path, [documents.seal(msgspec.structs.replace(old, started_at=ago, finished_at=ago))])
    agent = configured(agents.make([scene.member.endpoint], store.url), "proofs: {hash: {cron: '0 0 1 1 *'}}")
    agent.start()
    done = agent.wait_logged("job-done", job="proof-hash")
    assert done["late"]
    assert "hash" in done["outcome"]
    assert agent.terminate() == 0


def test_the_old_schedule_goes_on_alone_and_is_refused_beside_the_new_ones(agents, scene, store, capfd):
    alone = configured(agents.make([scene.member.endpoint], store.url), "verify: {cron: '0 3 * * *'}")
    assert run(alone, "agent", "--check-config")["jobs"] == ["verify"]
    both = agents.make([scene.member.endpoint], store.url)
    configured(both, "verify: {cron: '0 3 * * *'}, proofs: {replay: {cron: '0 3 * * *'}}")
    with pytest.raises(AssertionError, match="verify and proofs exclude each other: its level 4 is"):
        run(both, "agent", "--check-config")


def test_a_reload_says_what_it_does_not_take(agents, scene, store):
    agent = agents.start([scene.member.endpoint], store.url)
    agent.wait_reached(scene.client.header().revision)
    before = agent.doorway.url
    text = agent.config.read_text()
    changed = text.replace("agent: {", "agent: {http: {listen: '127.0.0.1:1'}, ").replace(
        "every: 1s", "every: 2s"
    )
    agent.config.write_text(changed)
    agent.signal(signal.SIGHUP)
    agent.wait_logged("restart-needed", settings="agent.http")
    agent.wait_logged("reloaded")
    assert agent.doorway.url == before
    shown = agent.ask()
    assert shown["needsRestart"] == ["agent.http"]
    assert shown["expectedIntervals"]["delta"] == 2, "the rest was taken"

    agent.config.write_text(text)
    agent.signal(signal.SIGHUP)
    agent.wait_logged("reloaded", count=2)
    wait_until(lambda: agent.ask()["needsRestart"] == [], "nothing is left to say")
    assert agent.terminate() == 0
