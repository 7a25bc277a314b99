"""Leases on a real API server, renewed by the sidecar beside a real etcd, as etcd-druid would read them."""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from rootcellar.agent import leases
from rootcellar.agent.board import Board
from rootcellar.agent.clock import SystemClock
from rootcellar.agent.journal import Journal
from rootcellar.agent.lease_plan import (
    TIMELINE,
    TLS,
    Beat,
    Reached,
    renew_full,
    renew_member,
)
from rootcellar.agent.leases import KubeMemberLeases, keeping, renew
from rootcellar.agent.settings import LeaseSettings
from rootcellar.backup.capture.session import RecoveryPoint
from rootcellar.cli import schema
from rootcellar.cli.etcdbrctl import before, leasing
from rootcellar.cli.etcdbrctl.reading import read
from rootcellar.cli.leasing import leases as own_leases
from rootcellar.errors import (
    ConfigError,
    KubeConflictError,
    KubeDeniedError,
    KubeNotFoundError,
    KubeUnavailableError,
)
from rootcellar.etcd.client import EtcdClient
from rootcellar.kube.access import Access
from rootcellar.kube.client import KubeClient
from rootcellar.kube.discovery import in_cluster
from rootcellar.kube.kinds import LEASES
from rootcellar.logs import make_log
from tests.agent.agents import wait_until
from tests.agent.door_scene import closed_port, write
from tests.agent.lease_scene import DELTA, FULL, MEMBER, Sidecar

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
DOCS = Path(__file__).parents[2] / "docs"
SIDECAR_RULES = yaml.safe_load(
    re.search("```yaml\n(.*?)```", (DOCS / "privileges.md").read_text(), re.DOTALL)[1]
)["rules"]
"""What we say is needed is all that the tests grant."""


# carried out


@pytest.fixture
def namespace(control_plane):
    """A namespace with the leases that etcd-druid makes."""
    name = control_plane.new_namespace()
    for each in (FULL, DELTA, MEMBER):
        control_plane.client.create(LEASES, {"metadata": {"name": each}}, name)
    return name


@pytest.fixture
def account(control_plane, namespace, tmp_path):
    return control_plane.service_account(namespace, SIDECAR_RULES, tmp_path / "serviceaccount")


@pytest.fixture
def pod(control_plane, account, namespace):
    """Once it may do what it may: an API server hears of rights and of their end a while after they were
    written.
    """
    with KubeClient(in_cluster(control_plane.environ(), mounted=account.directory)) as client:
        wait_until(lambda: members(client, namespace, MEMBER) is not None, "the rights")
        yield client


def test_a_renewal_that_loses_against_another_writer_is_made_anew_from_what_that_wrote(
    control_plane, pod, namespace
):
    rivals = [{"spec": {"holderIdentity": "30"}}, {"metadata": {"annotations": {"other": "kept"}}}]

    def plan(found):
        if rivals:
            control_plane.client.merge_patch(LEASES, FULL, rivals.pop(), namespace)
        return renew_full(found, Reached(1, 40), NOW)

    renew(pod, namespace, FULL, plan)
    found = control_plane.client.get(LEASES, FULL, namespace)
    assert rivals == []
    assert found.spec.holder_identity == "40"
    assert found.metadata.annotations == {"other": "kept", TIMELINE: "1"}


def test_a_rival_that_goes_further_meanwhile_is_not_lowered(control_plane, pod, namespace):
    rivals = [{"spec": {"holderIdentity": "50"}}]

    def plan(found):
        if rivals:
            control_plane.client.merge_patch(LEASES, FULL, rivals.pop(), namespace)
        return renew_full(found, Reached(1, 40), NOW)

    assert renew(pod, namespace, FULL, plan).why == "it is at revision 50, and we are at 40"
    assert control_plane.client.get(LEASES, FULL, namespace).spec.holder_identity == "50"


def test_a_rival_that_never_rests_ends_in_a_conflict_and_not_in_a_loop(control_plane, pod, namespace):
    turns = []

    def plan(found):
        turns.append(1)
        rival = {"metadata": {"annotations": {"turn": str(len(turns))}}}
        control_plane.client.merge_patch(LEASES, FULL, rival, namespace)
        return renew_full(found, Reached(1, 40), NOW)

    with pytest.raises(KubeConflictError):
        renew(pod, namespace, FULL, plan)
    assert len(turns) == 5


def test_a_lease_that_nobody_made_is_not_made_by_us(pod, namespace):
    with pytest.raises(KubeNotFoundError):
        renew(pod, namespace, "main-7", partial(renew_full, reached=Reached(1, 1), captured_at=NOW))


def test_a_sidecar_that_may_only_read_is_told_what_it_may_not(pod, account, control_plane):
    account.set_rules([{**SIDECAR_RULES[0], "verbs": ["get"]}])
    plan = partial(renew_full, captured_at=NOW)

    def denied():
        try:
            renew(pod, account.namespace, FULL, partial(plan, reached=Reached(1, len(turns))))
        except KubeDeniedError as error:
            return error
        turns.append(1)
        return None

    turns = [1]
    error = wait_until(denied, "the right is gone")
    assert 'cannot patch resource "leases" in API group "coordination.k8s.io"' in error.message
    assert "RoleBinding" in error.hint


# read


def members(pod, namespace, *names):
    return KubeMemberLeases(lambda: pod, namespace, names).registered()


def test_a_member_has_registered_once_it_has_renewed_its_lease(control_plane, pod, namespace):
    control_plane.client.create(LEASES, {"metadata": {"name": "main-1"}}, namespace)
    assert members(pod, namespace, "main-0", "main-1") == frozenset()
    renew(pod, namespace, "main-1", partial(renew_member, beat=Beat(1, 2, leads=False, tls=None), now=NOW))
    assert members(pod, namespace, "main-0", "main-1") == {"main-1"}


def test_where_a_lease_is_missing_or_cannot_be_read_nothing_is_known(control_plane, pod, namespace, tmp_path):
    assert members(pod, namespace, "main-0", "main-1") is None
    assert members(pod, "default", "main-0") is None

    def unconfigured():
        raise ConfigError("no API server")

    assert KubeMemberLeases(unconfigured, namespace, ["main-0"]).registered() is None


def test_an_api_server_that_is_silent_is_told_from_one_that_knows_nothing(namespace):
    with closed_port() as port:
        access = Access(f"http://127.0.0.1:{port}", namespace=namespace)
        leases = KubeMemberLeases(lambda: KubeClient(access, timeout=1), namespace, [MEMBER])
        with pytest.raises(KubeUnavailableError):
            leases.registered()


# by the sidecar


@pytest.fixture
def sidecar(etcd, tmp_path, control_plane, account):
    found = Sidecar(etcd, tmp_path / "pod", control_plane, account)
    with EtcdClient([found.member.endpoint]) as client:
        write(client, 4)
    yield found
    found.kill()


def test_a_leading_sidecar_renews_all_three_leases(sidecar):
    sidecar.start()
    sidecar.wait_holder(FULL, "5")
    full = sidecar.lease(FULL)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(full.spec.renew_time)) < timedelta(minutes=5)
    assert full.metadata.annotations[TIMELINE] == "1"
    sidecar.wait_holder(DELTA, "0")
    with EtcdClient([sidecar.member.endpoint]) as client:
        write(client, 3)
        status = client.status()
    sidecar.wait_holder(DELTA, "8")
    sidecar.wait_renewed(DELTA)  # while nothing changes in etcd
    assert sidecar.lease(FULL) == full
    ids = f"{status.header.member_id:x}:{status.header.cluster_id:x}"
    sidecar.wait_holder(MEMBER, f"{ids}:Leader")
    sidecar.wait_renewed(MEMBER)
    assert sidecar.lease(MEMBER).metadata.annotations[TLS] == "false"


def test_leases_cost_the_store_no_list(sidecar):
    sidecar.start()
    sidecar.wait_holder(DELTA, "0")
    with_leases = lists_per_period(sidecar, renewals=PERIODS)
    sidecar.terminate()
    sidecar.start(leases=False)
    assert lists_per_period(sidecar, renewals=0) == with_leases


PERIODS = 5


def lists_per_period(sidecar, renewals):
    """How often a quiet agent lists per heartbeat, which is the one object that it puts in a period; the
    lease of the deltas is renewed so often meanwhile, as late as a busy machine may have it.
    """

    def renewed():
        return sidecar.metric('rootcellar_lease_renewals_total{lease="delta"}')

    def calls():
        try:
            shown = sidecar.get("/metrics")  # of one moment: a put is two lists behind the one before
        except OSError:
            return 0, 0
        told = dict(
            re.findall(r'^rootcellar_store_calls_total\{verb="(put|list)"\} (\S+)$', shown, re.MULTILINE)
        )
        return float(told.get("put", 0)), float(told.get("list", 0))

    wait_until(lambda: calls()[0] > 3, "the session is open")
    (puts, lists), before = calls(), renewed()
    wait_until(
        lambda: calls()[0] >= puts + PERIODS and renewed() >= before + renewals, "some periods pass and show"
    )
    puts_then, lists_then = calls()
    return round((lists_then - lists) / (puts_then - puts))


def test_a_compaction_renews_the_lease_of_the_full(sidecar):
    sidecar.start()
    sidecar.wait_holder(DELTA, "0")
    with EtcdClient([sidecar.member.endpoint]) as client:
        write(client, 3)
    sidecar.terminate()
    assert sidecar.lease(FULL).spec.holder_identity == "5"
    sidecar.compact()
    assert sidecar.lease(FULL).spec.holder_identity == "8"
    assert sidecar.lease(FULL).metadata.annotations[TIMELINE] == "1"


def test_a_compaction_whose_lease_cannot_be_renewed_is_done_and_the_next_renews_it(
    sidecar, control_plane, namespace
):
    """Druid asks for another as long as the lease is behind: that has nothing to fold any more."""
    sidecar.start()
    sidecar.wait_holder(DELTA, "0")
    with EtcdClient([sidecar.member.endpoint]) as client:
        write(client, 3)
    sidecar.terminate()
    control_plane.client.delete(LEASES, FULL, namespace)
    sidecar.compact()
    assert "the lease of the full was not renewed: " in sidecar.log()
    assert f'"{FULL}" not found' in sidecar.log()
    assert "are now also" in sidecar.log()
    control_plane.client.create(LEASES, {"metadata": {"name": FULL}}, namespace)
    sidecar.compact()
    assert "nothing to fold" in sidecar.log()
    lease = sidecar.lease(FULL)
    assert (lease.spec.holder_identity, lease.metadata.annotations[TIMELINE]) == ("8", "1")


def test_the_last_delta_is_in_the_lease_when_the_sidecar_has_ended(sidecar):
    sidecar.start()
    sidecar.wait_holder(DELTA, "0")
    with EtcdClient([sidecar.member.endpoint]) as client:
        write(client, 3)
    assert sidecar.terminate() == 0
    assert sidecar.lease(DELTA).spec.holder_identity == "8"


@dataclass
class Ending:
    """What is asked of an agent; how one comes to this is held elsewhere."""

    captures: object
    journal: Journal
    board: Board
    clock: SystemClock
    log: object


def test_a_last_delta_that_takes_its_time_is_in_the_lease_too(control_plane, pod, namespace, monkeypatch):
    """An agent that is told to stop has let go of its captures long before they have ended."""
    monkeypatch.setattr(leases, "LAST", 60)  # a busy API server may take its time
    clock, log = SystemClock(), make_log()
    agent = Ending(
        SimpleNamespace(opened=asyncio.Event()), Journal(timeline=1), Board(clock, log), clock, log
    )
    agent.captures.opened.set()

    def reach(revision):
        agent.journal.delta.revision = revision
        agent.journal.point = RecoveryPoint(revision, clock.now())

    def shown(revision):
        lease = control_plane.client.get(LEASES, DELTA, namespace)
        return lease.spec.holder_identity == str(revision)

    async def live():
        async with keeping(agent, None, LeaseSettings(lambda: pod, namespace, delta=DELTA)):
            reach(5)
            await asyncio.to_thread(wait_until, lambda: shown(5))
            agent.board.stop()
            agent.captures = None
            reach(6)
            await asyncio.to_thread(wait_until, lambda: shown(6))
            reach(7)

    asyncio.run(live())
    assert shown(7)


def test_a_lease_that_is_further_is_not_lowered_and_captures_go_on(sidecar, control_plane, namespace):
    control_plane.client.merge_patch(LEASES, FULL, {"spec": {"holderIdentity": "1000"}}, namespace)
    sidecar.start()
    sidecar.wait_told("lease-not-lowered", FULL, "revision 1000, and we are at 5")
    sidecar.wait_holder(DELTA, "0")
    assert sidecar.lease(FULL).spec.holder_identity == "1000"


def test_without_the_right_captures_go_on_and_what_is_missing_is_told_until_it_is_granted(
    sidecar, account, pod, namespace
):
    account.set_rules([])
    wait_until(lambda: members(pod, namespace, MEMBER) is None, "the end of the rights")
    sidecar.start()
    sidecar.wait_told(
        "lease-failed", FULL, "code=kube-denied", 'cannot get resource \\"leases\\"', "RoleBinding"
    )
    latest = wait_until(lambda: sidecar.get("/snapshot/latest"), "the full is taken")
    assert '"lastRevision":5' in latest.replace(" ", "")
    denied = 'rootcellar_lease_failures_total{error="kube-denied",lease="%s"}'
    assert sidecar.metric(denied % "full") >= 1
    wait_until(lambda: sidecar.metric(denied % "member") >= 3, "the heart beats on")
    assert len(re.findall(f"lease-failed.*lease={MEMBER} ", sidecar.log())) == 1
    account.set_rules(SIDECAR_RULES)
    sidecar.wait_holder(FULL, "5")
    sidecar.wait_told("lease-renewed-again", FULL)


def test_a_token_that_is_exchanged_under_the_sidecar_is_used(sidecar, account):
    sidecar.start()
    sidecar.wait_holder(FULL, "5")
    account.revoke()
    sidecar.wait_told("lease-failed", MEMBER, "code=kube-denied", "(401)")
    account.rotate()
    sidecar.wait_told("lease-renewed-again", MEMBER)
    sidecar.wait_renewed(MEMBER)


class TestWithAnApiServerOfItsOwn:
    @pytest.fixture
    def control_plane(self, own_control_plane):
        return own_control_plane

    def test_an_api_server_that_is_away_stops_no_capture_and_hears_all_when_it_is_back(
        self, sidecar, control_plane
    ):
        sidecar.start()
        sidecar.wait_holder(DELTA, "0")
        control_plane.api_server.kill()
        try:
            sidecar.wait_told("lease-failed", MEMBER, "code=kube-unavailable", control_plane.url)
            with EtcdClient([sidecar.member.endpoint]) as client:
                write(client, 6)
            sidecar.get("/snapshot/full")
            latest = sidecar.get("/snapshot/latest").replace(" ", "")
            assert '"lastRevision":11' in latest
            unavailable = 'rootcellar_lease_failures_total{error="kube-unavailable",lease="member"}'
            assert sidecar.metric(unavailable) >= 1
        finally:
            control_plane.api_server.start()
        sidecar.wait_holder(FULL, "11")
        sidecar.wait_told("lease-renewed-again", MEMBER)


def test_a_sidecar_that_does_not_know_its_namespace_or_name_says_what_to_set():
    given = read(["server", "--enable-member-lease-renewal=true"])
    with pytest.raises(ConfigError) as caught:
        leasing.leases(given, {}, "main-0")
    assert "POD_NAMESPACE is not set" in caught.value.message
    with pytest.raises(ConfigError) as caught:
        leasing.leases(given, {"POD_NAMESPACE": "shoot"}, "")
    assert "POD_NAME" in caught.value.hint
    assert leasing.leases(read(["server"]), {}, "") is None


def test_an_initialization_asks_the_leases_of_all_members(control_plane, account, namespace, tmp_path):
    config = tmp_path / "etcd.conf.yaml"
    urls = {f"main-{n}": [f"http://127.0.0.1:{n + 1}"] for n in range(2)}
    cluster = ",".join(f"{name}={url}" for name, (url,) in urls.items())
    config.write_text(yaml.safe_dump({"initial-cluster": cluster, "initial-advertise-peer-urls": urls}))
    environ = {
        "ETCD_CONF": str(config),
        "POD_NAME": "main-0",
        "POD_NAMESPACE": namespace,
        "KUBECONFIG": str(control_plane.kubeconfig(tmp_path / "kubeconfig")),
    }
    given = read(["server", "--enable-member-lease-renewal=true"])
    with before.client(given) as speaker:
        leases = before.home(given, environ, speaker).leases
        assert leases.registered() is None
        control_plane.client.create(LEASES, {"metadata": {"name": "main-1"}}, namespace)
        assert leases.registered() == frozenset()
        assert before.home(read(["server"]), environ, speaker).leases is None


# by an agent of its own


class Agent(Sidecar):
    """`rootcellar agent` in the same environment."""

    def start(self):
        config = self._directory / "rootcellar.yaml"
        leases = {"full": FULL, "delta": DELTA, "member": MEMBER, "heartbeat": "1s"}
        written = {
            "stores": [{"name": "main", "url": f"file://{self._directory}/store"}],
            "etcd": {"endpoints": [self.member.endpoint]},
            "schedules": {"delta": {"every": "1s"}},
            "agent": {
                "poll": "1s",
                "state-dir": str(self._directory / "state"),
                "leases": {**leases, "namespace": self._account.namespace},
            },
        }
        config.write_text(yaml.safe_dump(written))
        self._begin("agent", "--config", str(config), program=())


def test_an_agent_renews_the_leases_of_its_configuration(etcd, tmp_path, control_plane, account):
    agent = Agent(etcd, tmp_path / "pod", control_plane, account)
    with EtcdClient([agent.member.endpoint]) as client:
        write(client, 4)
        agent.start()
        try:
            agent.wait_holder(FULL, "5")
            write(client, 3)
            status = client.status()
            agent.wait_holder(DELTA, "8")
            agent.wait_holder(MEMBER, f"{status.header.member_id:x}:{status.header.cluster_id:x}:Leader")
            write(client, 1)
            assert agent.terminate() == 0
        finally:
            agent.kill()
    assert agent.lease(DELTA).spec.holder_identity == "9", "the last delta is told, too"


def test_the_leases_of_a_configuration_lie_where_it_says_or_where_the_agent_is(tmp_path, kubeconfig):
    environ = {"KUBECONFIG": str(kubeconfig)}
    one = ("http://127.0.0.1:2379",)
    assert own_leases(None, one, environ) is None
    found = own_leases(schema.Leases(full=FULL, heartbeat="1m"), one, environ)
    assert (found.namespace, found.full, found.delta, found.member) == ("garden", FULL, "", "")
    assert found.heartbeat == 60
    named = own_leases(schema.Leases(member=MEMBER, namespace="shoot"), one, environ)
    assert (named.namespace, named.member) == ("shoot", MEMBER)
    assert named == own_leases(schema.Leases(member=MEMBER, namespace="shoot"), one, environ)
    with pytest.raises(ConfigError, match="is one member's, and etcd has several endpoints"):
        own_leases(schema.Leases(member=MEMBER, namespace="shoot"), one * 2, environ)
    with pytest.raises(ConfigError, match="no Kubernetes API server is known here"):
        own_leases(schema.Leases(full=FULL), one, {"HOME": str(tmp_path)})
    with pytest.raises(ValueError, match="names no lease"):
        schema.Leases(namespace="shoot")


@pytest.fixture
def kubeconfig(tmp_path):
    path = tmp_path / "kubeconfig"
    context = {"cluster": "pod", "user": "pod", "namespace": "garden"}
    written = {
        "current-context": "pod",
        "clusters": [{"name": "pod", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "pod", "user": {"token": "none"}}],
        "contexts": [{"name": "pod", "context": context}],
    }
    path.write_text(yaml.safe_dump(written))
    return path
