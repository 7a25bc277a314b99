"""Jobs that keep chains and members in order, against real etcds and stores."""

from __future__ import annotations

import asyncio
import io
from datetime import UTC, datetime

import pytest

from rootcellar.agent.defragment import ALWAYS, Threshold
from rootcellar.agent.errands import prune_job
from rootcellar.agent.jobs import Errand
from rootcellar.agent.journal import Journal
from rootcellar.agent.keeping import Folding, Growth, compact_job, defragment_job
from rootcellar.agent.mirror import Mirror, Mirroring, Reached, fill
from rootcellar.agent.proving import Proving
from rootcellar.agent.schedule import Cron
from rootcellar.backup.capture.full import FullOptions
from rootcellar.backup.capture.session import RecoveryPoint
from rootcellar.backup.catalogue import names
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.fence import claim_epoch
from rootcellar.backup.catalogue.records import Check, Result
from rootcellar.backup.objects.sealing.keyring import Identity, Keyring
from rootcellar.backup.prune.prune import prune
from rootcellar.backup.prune.retention import LimitBased
from rootcellar.backup.prune.values import Rules
from rootcellar.errors import AgentError, ConfigError, FencedError, NoKeyError, ProofError, TransientError
from rootcellar.logs import make_log
from rootcellar.stores.file import FileStore
from tests.agent.agents import wait_until
from tests.agent.commands import run
from tests.backup.capture_scene import a_scene

HOURLY = Cron("0 * * * *")
KEY = Identity(b"7" * 32)


@pytest.fixture
def store(tmp_path):
    return FileStore(tmp_path / "store")


@pytest.fixture
def scene(etcd, store):
    with a_scene(etcd, "3.6", store) as scene:
        yield scene


class Once:
    """Runs a job once; `out` is its log."""

    def __init__(self, scene):
        self.scene = scene
        self.out = io.StringIO()

    def __call__(self, job, epoch=None):
        now = datetime.now(UTC)
        log = make_log("json", self.out)
        errand = Errand(now, self.scene.client, self.scene.store, "tests/1", log, job.name, epoch)
        return asyncio.run(job.run(errand))


@pytest.fixture
def once(scene):
    return Once(scene)


def deltas(scene, count):
    for _ in range(count):
        scene.write(2)
        scene.capture()


def fulls(store):
    return [each for each in read_catalogue(store).snapshots if each.is_full]


def test_a_chain_is_folded_once_it_has_grown_past_its_bound(scene, once, tmp_path):
    job = compact_job(HOURLY, Growth(deltas=3), Folding(scratch=tmp_path))
    assert once(job) == "there is nothing to fold yet"
    scene.full()
    assert once(job) == "the newest chain is one full"
    deltas(scene, 2)
    assert once(job) == "2 deltas are not enough"
    deltas(scene, 1)
    assert once(job).endswith("for 3 deltas, 3 is the most")
    folded = fulls(scene.store)[-1]
    last = scene.client.header().revision
    assert (folded.last, len(fulls(scene.store))) == (last, 2)
    assert once(job) == "the newest chain is one full"
    scene.must_equal(scene.restored(), last)


def test_a_chain_is_folded_once_its_deltas_take_too_much(scene, once):
    scene.full()
    deltas(scene, 1)
    size = sum(each.size for each in read_catalogue(scene.store).snapshots if not each.is_full)
    assert once(compact_job(HOURLY, Growth(bytes=size + 1), Folding())) == "1 deltas are not enough"
    assert f"{size} is the most" in once(compact_job(HOURLY, Growth(bytes=size), Folding()))


def sealed(scene, *, full):
    how = FullOptions(suffix=names.ZSTD + names.AGE)
    return scene.capture(full=full, how=how, recipients=(KEY.recipient,))


def test_an_encrypted_chain_is_proven_with_the_configured_identities_and_folded_into_an_encrypted_full(
    scene, once
):
    scene.write(3)
    sealed(scene, full=True)
    scene.write(3)
    sealed(scene, full=False)
    ring = Keyring((KEY,))
    proving = Proving(Journal, lambda _store: ring)
    told = once(proving.job("proof-replay", HOURLY, 4))
    assert "replayed" in told
    assert "without" not in told
    folding = Folding(names.ZSTD + names.AGE, (KEY.recipient,))
    told = once(compact_job(HOURLY, Growth(), folding, identities=lambda _store: ring))
    assert told.startswith("sealed/")
    assert fulls(scene.store)[-1].name.is_encrypted


def test_without_a_key_an_encrypted_chain_is_held_against_its_records_and_that_is_said(scene, once, tmp_path):
    scene.write(3)
    sealed(scene, full=True)
    journal = Journal()
    job = Proving(lambda: journal).job("proof-boot", HOURLY, 5)
    told = once(job)
    assert "listed, hash; nothing beyond" in told
    assert KEY.recipient.key_id in told
    (proof,) = read_catalogue(scene.store).proofs
    assert {each.check: each.result for each in proof.findings} == {
        Check.LISTED: Result.PASSED,
        Check.HASH: Result.PASSED,
    }
    path = tmp_path / "store" / fulls(scene.store)[0].key
    path.write_bytes(path.read_bytes()[:-1] + b"!")
    with pytest.raises(ProofError, match="hash failed"):
        once(job)


def test_an_encrypted_chain_is_not_folded_without_a_key(scene, once):
    scene.write(3)
    sealed(scene, full=True)
    scene.write(1)
    sealed(scene, full=False)
    with pytest.raises(NoKeyError):
        once(compact_job(HOURLY, Growth(), Folding(names.ZSTD + names.AGE, (KEY.recipient,))))


def test_a_prune_runs_in_the_epoch_it_is_given_and_never_in_one_of_its_own(scene, once):
    scene.full()
    job = prune_job(HOURLY, Rules(LimitBased(1)))
    with pytest.raises(FencedError, match="no session is open"):
        once(job)
    epoch = claim_epoch(scene.store, "tests/1", datetime.now(UTC))
    once(job, epoch)
    assert read_catalogue(scene.store).epoch == epoch
    claim_epoch(scene.store, "tests/2", datetime.now(UTC))
    with pytest.raises(FencedError, match="was superseded"):
        once(job, epoch)


def test_members_that_waste_enough_are_defragmented_and_others_spared(scene, once):
    for _ in range(3):
        for number in range(40):
            scene.client.put(b"%d" % number, bytes(100_000))
    scene.client.compact(scene.client.header().revision, physical=True)
    before = scene.client.status().db_size
    spare = defragment_job(HOURLY, Threshold(0.99, 1 << 40), timeout=60)
    assert once(spare) == "no member wastes enough"
    assert once(defragment_job(HOURLY, ALWAYS, timeout=60)) == scene.member.name
    assert scene.client.status().db_size < before


def test_jobs_of_the_configuration_run_beside_encrypted_captures(agents, scene, tmp_path):
    """`compact`, `verify` and `defrag`, again and again, where all is encrypted; captures go on."""
    key = tmp_path / "identity"
    key.write_text(f"{KEY.secret_text()}\n")
    key.chmod(0o600)
    scene.client.put(b"a", b"b")
    sealed(scene, full=True)  # a tick before the first full is in the store would find nothing to verify
    agent = agents.make([scene.member.endpoint], scene.store.url)
    often = "cron: '*/5 * * * * *'"
    text = agent.config.read_text().replace(
        "name: main,",
        f"name: main, encryption: {{recipients: ['{KEY.recipient}']}}, identities: {{file: '{key}'}},",
    )
    jobs = f"compact: {{{often}}}, verify: {{{often}}}, defrag: {{{often}, waste: 0, least: 0B}}"
    agent.config.write_text(text.replace("schedules: {", f"schedules: {{{jobs}, "))
    agent.start()
    agent.wait_reached(2)
    for _ in range(2):
        agent.wait_reached(scene.write(2))
    for job in ("compact", "verify", "defragment"):
        wait_until(lambda job=job: agent.logged("job-done", job=job), f"{job} in {agent.log_path}", 100)
    agent.wait_reached(scene.write(2))
    catalogue = read_catalogue(scene.store)
    assert all(each.name.is_encrypted for each in catalogue.snapshots)
    assert "replayed" in agent.logged("job-done", job="verify")[0]["outcome"]
    assert agent.logged("job-failed") == []
    assert catalogue.epoch.number == 2, "the agent's own"
    target = scene.etcd.make(scene.line)
    member = f"{target.name}={target.peer_url}"
    assert agent.terminate() == 0
    run(agent, "restore", "--data-dir", target.data_dir, "--member", member, "--keep-history")
    target.start()
    scene.must_equal(target, scene.client.header().revision)


def test_a_prune_by_hand_beside_an_agent_works_in_its_epoch(agents, scene):
    scene.client.put(b"a", b"b")
    agent = agents.start([scene.member.endpoint], scene.store.url)
    agent.wait_reached(2)
    for _ in range(2):
        scene.write(1)
        agent.ask("/snapshot/full", "POST")
    run(agent, "prune", "--policy", "limit=1", "--yes")
    agent.wait_reached(scene.write(1))
    catalogue = read_catalogue(scene.store)
    assert (catalogue.epoch.number, len(fulls(scene.store))) == (1, 1)
    assert agent.logged("capture-failed") == []


def test_without_a_store_members_are_cared_for_and_nothing_is_captured(agents, scene):
    agent = agents.make([scene.member.endpoint], None)
    text = agent.config.read_text()
    often = "cron: '*/2 * * * * *'"
    defrag = f"defrag: {{{often}, waste: 0, least: 0B}}, prune: {{{often}}}, "
    agent.config.write_text(text.replace("schedules: {", f"schedules: {{{defrag}"))
    agent.start()
    wait_until(lambda: agent.phase() == "leader", "it leads")
    wait_until(lambda: agent.logged("job-done", job="defragment"), "a defragmentation", 100)
    status = agent.ask()
    assert [each["name"] for each in status["schedules"]] == ["defragment"]
    assert (status["store"], status["stores"], status["recovery"]["last"]) == (None, [], None)
    with pytest.raises(AgentError, match="it has no store"):
        agent.ask("/snapshot/full", "POST")
    assert "rootcellar_leader 1.0" in agent.get("/metrics")
    assert agent.logged("stored") == []
    assert agent.terminate() == 0


def test_a_mirror_that_wants_encryption_gets_nothing_that_is_in_the_clear(scene, tmp_path):
    second = FileStore(tmp_path / "second")
    mirror = Mirror("second", second.url, lambda: second, wants_encryption=True)
    scene.full()
    with pytest.raises(ConfigError, match="store @second wants encryption, and v2/Full-"):
        fill(scene.store, second, mirror, datetime.now(UTC))
    assert list(second.list()) == []


def test_what_was_away_when_it_was_to_be_copied_is_copied_without_a_new_capture(scene, once, tmp_path):
    second = FileStore(tmp_path / "second")
    scene.full()
    (full,) = fulls(scene.store)
    place = tmp_path / "store" / full.key
    journal, reached = Journal(point=RecoveryPoint(full.last, datetime.now(UTC))), Reached("second")
    (job,) = Mirroring(Mirror("second", second.url, lambda: second), reached, journal).jobs()
    before = job.mark()

    place.rename(tmp_path / "aside")
    place.touch()
    assert "1 could not be" in once(job)
    assert job.mark() not in (None, before), "it is due again"
    assert job.mark() == job.mark(), "but not all the time"

    (tmp_path / "aside").rename(place)
    assert "1 objects copied" in once(job)
    assert job.mark() == before
    assert [each.key for each in fulls(second)] == [full.key]


def test_a_first_store_that_is_not_mounted_is_not_taken_for_an_empty_one(scene, once, tmp_path):
    second = FileStore(tmp_path / "second")
    epoch = claim_epoch(scene.store, "tests/1", datetime.now(UTC))
    scene.full()
    journal, reached = Journal(point=RecoveryPoint(9, datetime.now(UTC))), Reached("second")
    (job,) = Mirroring(Mirror("second", second.url, lambda: second), reached, journal).jobs()

    (tmp_path / "store").rename(tmp_path / "aside")
    (tmp_path / "store").mkdir()
    with pytest.raises(TransientError, match="does not show what was written to it"):
        once(job, epoch)
    assert reached.held(journal) is None

    (tmp_path / "store").rmdir()
    (tmp_path / "aside").rename(tmp_path / "store")
    assert "1 objects copied" in once(job, epoch)
    assert reached.held(journal) == journal.point


def test_what_a_mirror_s_own_retention_deleted_or_would_delete_is_not_copied_again(scene, tmp_path):
    second = FileStore(tmp_path / "second")
    rules = Rules(LimitBased(1))
    mirror = Mirror("second", second.url, lambda: second, rules=rules)
    whole = Mirror("second", second.url, lambda: second)
    for _ in range(2):
        scene.write(2)
        scene.full()
    fill(scene.store, second, whole, datetime.now(UTC))
    assert len(fulls(second)) == 2
    prune(second, rules, writer="tests/1")
    assert fill(scene.store, second, mirror, datetime.now(UTC)).copied == ()
    assert fill(scene.store, second, whole, datetime.now(UTC)).copied == ()
    assert [each.key for each in fulls(second)] == [fulls(scene.store)[-1].key]
