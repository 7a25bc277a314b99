"""More of what befalls an agent: credentials, alarms, TLS."""

from __future__ import annotations

import asyncio
import io
import ssl
import threading
import urllib.error
import urllib.request
from contextlib import suppress

import pytest

from rootcellar.agent.clock import SystemClock
from rootcellar.agent.leadership import Rule
from rootcellar.agent.process import Agent
from rootcellar.agent.settings import Settings
from rootcellar.agent.state import Phase
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.errors import EtcdError
from rootcellar.etcd.client import EtcdClient
from rootcellar.logs import make_log
from rootcellar.stores.file import FileStore
from tests.agent.agents import wait_until
from tests.agent.commands import run
from tests.stores.proxy import Proxy


@pytest.fixture
def url(tmp_path):
    return f"file://{tmp_path / 'store'}"


def test_wrong_credentials_are_told_and_right_ones_are_taken_without_a_restart(
    agents, etcd, bucket, tmp_path
):
    member = etcd.start("3.6")
    member.etcdctl("put", "a", "b")
    keys = tmp_path / "keys"
    keys.mkdir()
    (keys / "accessKeyID").write_text(bucket.access_key)
    (keys / "secretAccessKey").write_text("wrong" + bucket.secret_key)
    url = f"s3://{bucket.name}/agent-credentials?endpoint={bucket.endpoint}&region={bucket.region}"
    agent = agents.make([member.endpoint], url, "--credentials", f"dir:{keys}").start()
    agent.wait_logged("capture-failed", fault="store-denied")
    assert agent.phase() == "degraded"
    (keys / "secretAccessKey").write_text(bucket.secret_key)
    agent.wait_reached(2)
    agent.wait_phase("leader")
    assert agent.terminate() == 0
    assert bucket.secret_key not in agent.log_path.read_text()


def test_an_agent_whose_etcd_ended_before_it_does_not_wait_its_grace_out(agents, etcd, url):
    """In a pod both are told to end at the same moment."""
    member = etcd.start("3.6")
    member.etcdctl("put", "a", "b")
    agent = agents.make([member.endpoint], url, delta="1h").start()
    agent.wait_reached(2)
    member.etcdctl("put", "a", "c")
    member.kill()
    wait_until(lambda: "etcd-unavailable" in agent.ask()["faults"], "the fault is told")
    assert agent.terminate() == 0
    (given_up,) = agent.logged("last-delta-given-up")
    assert given_up["code"] == "etcd-unavailable", "not because of the grace"
    told = [each["event"] for each in agent.events]
    ending = told[max(at for at, event in enumerate(told) if event == "state") :]
    assert ending.count("capture-failed") <= 1, "what goes wrong meanwhile is told once"


def test_whoever_asks_a_leader_that_is_just_opening_its_session_gets_a_backup(agents, etcd, bucket):
    member = etcd.start("3.6")
    member.etcdctl("put", "a", "b")
    names = {"AWS_ACCESS_KEY_ID": bucket.access_key, "AWS_SECRET_ACCESS_KEY": bucket.secret_key}
    answers = threading.Event()

    def hold(_request):
        answers.wait(60)

    with Proxy(int(bucket.endpoint.rpartition(":")[2])) as proxy:
        proxy.always(hold)
        url = f"s3://{bucket.name}/opening?endpoint={proxy.endpoint}&region={bucket.region}"
        agent = agents.make([member.endpoint], url, delta="1h", **names).start()
        agent.wait_phase("leader")
        threading.Timer(1, answers.set).start()
        assert agent.ask("/snapshot/delta", "POST")["full"]["last"] == 2
        assert agent.terminate() == 0


def test_an_etcd_without_space_is_told_and_still_backed_up(agents, etcd, url, tmp_path):
    member = etcd.start("3.6", flags=("--quota-backend-bytes", str(4 << 20)))
    with EtcdClient([member.endpoint]) as client:
        client.put(b"a", b"b")
        agent = agents.start([member.endpoint], url)
        agent.wait_reached(2)
        number = 0
        while not client.alarms():
            number += 1
            with suppress(EtcdError):  # the one that raises the alarm
                client.put(b"k%d" % number, bytes(200_000))
        agent.wait_phase("degraded")
        assert "etcd-nospace" in agent.ask()["faults"]
        agent.wait_reached(client.header().revision)
        client.disarm(client.alarms()[0])
        wait_until(lambda: "etcd-nospace" not in agent.ask()["faults"], "the alarm is forgotten")
        agent.terminate()
        assert read_catalogue(FileStore(tmp_path / "store")).damaged == ()


def test_with_certificates_http_is_tls_and_takes_a_client_s_in_the_place_of_the_token(
    agents, etcd, url, authority
):
    member = etcd.start("3.6")
    member.etcdctl("put", "a", "b")
    agent = agents.make([member.endpoint], url)
    pair = authority.server
    http = f"cert: '{pair.certificate}', key: '{pair.key}', client-ca: '{authority.ca}'"
    text = agent.config.read_text()
    agent.config.write_text(text.replace("agent: {", f"agent: {{http: {{{http}}}, "))
    agent.start()
    wait_until(lambda: agent.doorway, "the door")
    agent.wait_reached(2)
    assert run(agent, "status")["agent"]["revision"] == 2

    def status(context):
        opener = urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
        )
        with opener.open(f"{agent.doorway.url}/status", timeout=10) as answer:
            return answer.status

    known = authority.context(authority.client())
    stranger = ssl.create_default_context(cafile=authority.ca)
    assert status(known) == 200
    with pytest.raises(urllib.error.HTTPError, match="401"):
        status(stranger)


def test_a_changed_certificate_file_has_everything_opened_anew_once_it_is_whole(
    agents, etcd, url, authority, tmp_path
):
    member = etcd.start("3.6", tls=authority)
    member.etcdctl("put", "a", "b")
    pair = authority.client()
    cert, key = tmp_path / "client.crt", tmp_path / "client.key"
    cert.write_bytes(pair.certificate.read_bytes())
    key.write_bytes(pair.key.read_bytes())
    agent = agents.make(
        [member.endpoint], url, "--cacert", authority.ca, "--cert", cert, "--key", key
    ).start()
    agent.wait_reached(2)
    renewed = authority.client()
    cert.write_bytes(renewed.certificate.read_bytes())
    key.write_bytes(renewed.key.read_bytes())
    agent.wait_logged("files-changed")
    agent.wait_logged("reloaded")
    member.etcdctl("put", "a", "c")
    agent.wait_reached(3)

    def failed(why):
        return any(why in each["error"] for each in agent.logged("reload-failed"))

    cert.write_bytes(b"")
    wait_until(lambda: failed("is empty"), "a reload that fails")
    cert.unlink()
    wait_until(lambda: failed("cannot read"), "another")
    member.etcdctl("put", "a", "d")
    agent.wait_reached(4)  # by what it has read before
    assert agent.phase() == "degraded"
    told = len(agent.logged("reloaded"))
    cert.write_bytes(renewed.certificate.read_bytes())
    agent.wait_logged("reloaded", told + 1)
    agent.wait_phase("leader")
    assert agent.terminate() == 0


def test_a_look_for_the_leader_that_fails_in_an_unknown_way_ends_no_agent(etcd, tmp_path):
    member = etcd.start("3.6")
    failing = threading.Event()

    class Failing(EtcdClient):
        def status(self, **how):
            if failing.is_set():
                raise RuntimeError("can't start new thread")
            return super().status(**how)

    def load():
        return Settings(
            "tests/1",
            (member.endpoint,),
            lambda: Failing([member.endpoint]),
            tmp_path,
            Rule.FOLLOW,
            poll=0.05,
        )

    async def live():
        agent = Agent(load, make_log("json", io.StringIO()), SystemClock())
        running = asyncio.create_task(agent.run())
        await asyncio.to_thread(wait_until, lambda: agent.board.state.phase is Phase.LEADER, "the start")
        failing.set()
        await asyncio.to_thread(
            wait_until, lambda: "can't start new thread" in agent.board.state.reason, "the fault"
        )
        failing.clear()
        await asyncio.to_thread(
            wait_until, lambda: agent.board.state.phase is Phase.LEADER, "what comes after it"
        )
        agent.stop()
        await running

    asyncio.run(live())


def test_retention_and_proofs_run_on_schedules_in_the_agent_s_own_epoch(agents, etcd, url, tmp_path):
    member = etcd.start("3.6")
    member.etcdctl("put", "a", "b")
    agent = agents.make([member.endpoint], url)
    text = agent.config.read_text().replace("name: main,", "name: main, retention: {limit: 1},")
    often = "{cron: '*/2 * * * * *'}"
    agent.config.write_text(text.replace("schedules: {", f"schedules: {{prune: {often}, verify: {often}, "))
    agent.start()
    agent.wait_reached(2)
    for number in range(3):
        member.etcdctl("put", "a", f"{number}")
        agent.ask("/snapshot/full", "POST")

    def proven():
        proof = agent.ask()["lastProof"]
        return proof and (proof["check"], proof["revision"]) == ("replayed", 5)

    def look():
        return read_catalogue(FileStore(tmp_path / "store"))

    wait_until(lambda: [each.last for each in look().snapshots if each.is_full] == [5], "the last full alone")
    wait_until(proven, "a proof of the last full")
    assert look().epoch.number == 1
    assert "rootcellar_last_proof_age_seconds" in agent.get("/metrics")
    assert agent.terminate() == 0
