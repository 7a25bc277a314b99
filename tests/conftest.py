"""Real servers for every test that asks, and an environment that nothing on this machine leaks into.

`etcd` starts members (`etcd.start("3.6")`, `etcd.start_cluster("3.5")`), `bucket` is an empty bucket of
SeaweedFS, `plain_bucket` one of rclone, which ignores conditions; `authority` makes certificates; `boltcheck`
asks bbolt; `control_plane` is Kubernetes without a node.  All servers but etcd's are shared by the workers of
a run: who stops one starts one of his own, as `own_control_plane` is.  What this machine cannot provide skips
the test with the reason; where `CI` is set it fails it.
"""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rootcellar.etcd.process import find_etcd
from testbed import binaries
from testbed.cache import UnavailableError
from testbed.etcd import Etcds
from testbed.kubernetes import ControlPlane, RunningControlPlane
from testbed.server import ServerError
from testbed.sharing import Guest, Host
from testbed.tls import Authority

# Credentials, endpoints and proxies of whoever runs the tests; removed here once, before any server starts.
_FOREIGN = (
    "AWS_",
    "AZURE_",
    "GCE_METADATA_",
    "GOOGLE_",
    "ETCD_",
    "ETCDCTL_",
    "KUBECONFIG",
    "KUBERNETES_",
    "RCLONE_",
    "ROOTCELLAR_",
    "WEED_",
)
for _name in list(os.environ):
    if _name.startswith(_FOREIGN) or _name.lower() in {"http_proxy", "https_proxy", "all_proxy"}:
        del os.environ[_name]

# Tests start our programs a thousand times, and where nothing is kept of what was compiled each start takes
# more than a second longer.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Whoever starts a job in the background has it ignore interrupts, and its children inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# What a test asks for when it needs a server or a program of the testbed.
_SERVERS = {
    "azurite",
    "azurite_tls",
    "binary",
    "boltcheck",
    "control_plane",
    "etcd",
    "etcd_line",
    "fake_gcs",
    "own_control_plane",
    "rclone_s3",
    "seaweed",
    "seaweed_tls",
    "swift",
}

# A shared machine is slow at times, which is no property of the code.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("default"), derandomize=True, print_blob=True)
settings.register_profile(
    "fuzz", settings.get_profile("default"), max_examples=int(os.environ.get("FUZZ_EXAMPLES", "20000"))
)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items):
    for item in items:
        if not _SERVERS.isdisjoint(item.fixturenames):
            item.add_marker("servers")


_SHARED = pytest.StashKey[Host | Guest]()
_TROUBLE = pytest.StashKey[str]()


def pytest_configure(config):
    if given := getattr(config, "workerinput", None):
        config.stash[_SHARED] = Guest(*given["testbed"])
    else:
        # The factory of temporary directories has no other name where no test asks for it.
        config.stash[_SHARED] = Host(lambda: config._tmp_path_factory.getbasetemp() / "servers")  # noqa: SLF001


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node):
    """Of xdist: what a worker is told before it begins."""
    node.workerinput["testbed"] = node.config.stash[_SHARED].door()


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session):
    if isinstance(shared := session.config.stash[_SHARED], Host):
        shared.close()


def _explain(config, error):
    """Skip for a part that cannot be had; add to another failure what a shared server died of, if one did."""
    if isinstance(error, UnavailableError) and not os.environ.get("CI"):
        pytest.skip(f"testbed: {error}")
    is_failure = isinstance(error, (Exception, pytest.fail.Exception))
    if is_failure and _TROUBLE not in config.stash and (trouble := config.stash[_SHARED].trouble()):
        config.stash[_TROUBLE] = trouble
        error.add_note(trouble)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    if "servers_of_the_run" in item.fixturenames and (trouble := item.config.stash.get(_TROUBLE, "")):
        raise ServerError(trouble)
    try:
        return (yield)
    except BaseException as error:
        _explain(item.config, error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except BaseException as error:
        _explain(item.config, error)
        raise


# The oldest and the newest line of etcd always, those between as long tests.  What every run has to try on
# every line is parametrized by itself.
_OLDEST, *_BETWEEN, _NEWEST = binaries.LINES
_LINES = (_OLDEST, *(pytest.param(line, marks=pytest.mark.long) for line in _BETWEEN), _NEWEST)


@pytest.fixture(params=_LINES)
def etcd_line(request):
    """Each line of etcd that a restore serves: "3.4" to "3.7"."""
    return request.param


@pytest.fixture(scope="session", params=_LINES)
def binary(request):
    """The same as a program."""
    return find_etcd(binaries.etcd(request.param).etcd)


@pytest.fixture
def etcd(tmp_path):
    """Starts etcd members for this test; they are killed after it."""
    with Etcds(tmp_path / "etcd") as members:
        yield members


@pytest.fixture(scope="session")
def servers_of_the_run(request):
    """The servers of this run, which start when somebody asks for them."""
    return request.config.stash[_SHARED]


@pytest.fixture(scope="session")
def authority(servers_of_the_run, tmp_path_factory):
    """A certificate authority for servers and clients."""
    return Authority(tmp_path_factory.mktemp("tls"), servers_of_the_run.root())


@pytest.fixture(scope="session")
def seaweed(servers_of_the_run):
    """SeaweedFS: S3 with conditions, versions and locks."""
    return servers_of_the_run.ask("seaweed")


@pytest.fixture(scope="session")
def seaweed_tls(servers_of_the_run):
    """The same by HTTPS, with a certificate that only `authority` vouches for."""
    return servers_of_the_run.ask("seaweed_tls")


@pytest.fixture(scope="session")
def rclone_s3(servers_of_the_run):
    """Rclone's S3, which overwrites whatever the condition says and knows no locks."""
    return servers_of_the_run.ask("rclone_s3")


@pytest.fixture(scope="session")
def azurite(servers_of_the_run):
    """Azurite: Azure Blob Storage without versions and immutability."""
    return servers_of_the_run.ask("azurite")


@pytest.fixture(scope="session")
def azurite_tls(servers_of_the_run):
    """The same by HTTPS, which also takes tokens."""
    return servers_of_the_run.ask("azurite_tls")


@pytest.fixture(scope="session")
def fake_gcs(servers_of_the_run):
    """fake-gcs-server: Google Cloud Storage without retention and holds."""
    return servers_of_the_run.ask("fake_gcs")


@pytest.fixture(scope="session")
def swift(servers_of_the_run):
    """OpenStack Swift: an object store without conditions, versions and locks."""
    return servers_of_the_run.ask("swift")


@pytest.fixture(scope="session")
def control_plane(servers_of_the_run):
    """A Kubernetes control plane; its `new_namespace()` keeps one test's objects from another's.
    `TESTBED_KUBECONFIG` names another cluster to use (never `KUBECONFIG`: whoever has that set does not
    expect tests to write there).
    """
    if named := os.environ.get("TESTBED_KUBECONFIG"):
        with RunningControlPlane(Path(named)) as foreign:
            foreign.start()
            yield foreign
    else:
        running = RunningControlPlane(servers_of_the_run.ask("control_plane"))
        running.start()
        yield running


@pytest.fixture(scope="session")
def own_control_plane(tmp_path_factory):
    """One that this worker alone has, to be stopped or written to behind its back.  It has no controllers."""
    with ControlPlane(tmp_path_factory.mktemp("kubernetes"), controllers=False) as control_plane:
        control_plane.start()
        yield control_plane


@pytest.fixture
def bucket(seaweed):
    return seaweed.new_bucket()


@pytest.fixture
def locked_bucket(seaweed):
    """A versioned bucket with object lock."""
    return seaweed.new_bucket(object_lock=True)


@pytest.fixture
def bucket_tls(seaweed_tls):
    return seaweed_tls.new_bucket()


@pytest.fixture
def plain_bucket(rclone_s3):
    return rclone_s3.new_bucket()


@pytest.fixture(scope="session")
def boltcheck():
    """Runs `boltcheck COMMAND FILE [SPEC]`; the result has returncode, stdout and stderr."""
    program = binaries.boltcheck()

    def run(*arguments):
        return subprocess.run([program, *arguments], capture_output=True, text=True, timeout=120, check=False)

    return run
