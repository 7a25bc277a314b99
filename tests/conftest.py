"""Real servers for every test that asks, and an environment that nothing on this machine leaks into.

`etcd` starts members (`etcd.start("3.6")`, `etcd.start_cluster("3.5")`), `bucket` is an empty bucket of
SeaweedFS, `plain_bucket` one of rclone, which ignores conditions; `authority` makes certificates; `boltcheck`
asks bbolt; `control_plane` is Kubernetes without a node.  What this machine cannot provide skips the test
with the reason; where `CI` is set it fails it.
"""

import os
import signal
import subprocess

import pytest
from hypothesis import HealthCheck, settings

from rootcellar.etcd.process import find_etcd
from testbed import binaries
from testbed.azurite import Azurite
from testbed.cache import UnavailableError
from testbed.etcd import Etcds
from testbed.gcs import FakeGcs
from testbed.kubernetes import ControlPlane
from testbed.s3 import Rclone, SeaweedFS
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
    "rclone_s3",
    "seaweed",
    "seaweed_tls",
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


def _skip_unless_ci(error):
    if not os.environ.get("CI"):
        pytest.skip(f"testbed: {error}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item):
    try:
        return (yield)
    except UnavailableError as error:
        _skip_unless_ci(error)
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    try:
        return (yield)
    except UnavailableError as error:
        _skip_unless_ci(error)
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
def authority(tmp_path_factory):
    """A certificate authority for servers and clients."""
    return Authority(tmp_path_factory.mktemp("tls"))


def _serving(server):
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def seaweed(tmp_path_factory):
    """SeaweedFS: S3 with conditions, versions and locks."""
    yield from _serving(SeaweedFS(tmp_path_factory.mktemp("seaweed")))


@pytest.fixture(scope="session")
def seaweed_tls(tmp_path_factory, authority):
    """The same by HTTPS, with a certificate that only `authority` vouches for."""
    yield from _serving(SeaweedFS(tmp_path_factory.mktemp("seaweed-tls"), authority))


@pytest.fixture(scope="session")
def rclone_s3(tmp_path_factory):
    """Rclone's S3, which overwrites whatever the condition says and knows no locks."""
    yield from _serving(Rclone(tmp_path_factory.mktemp("rclone")))


@pytest.fixture(scope="session")
def azurite(tmp_path_factory):
    """Azurite: Azure Blob Storage without versions and immutability."""
    yield from _serving(Azurite(tmp_path_factory.mktemp("azurite")))


@pytest.fixture(scope="session")
def azurite_tls(tmp_path_factory, authority):
    """The same by HTTPS, which also takes tokens."""
    yield from _serving(Azurite(tmp_path_factory.mktemp("azurite-tls"), authority))


@pytest.fixture(scope="session")
def fake_gcs(tmp_path_factory):
    """fake-gcs-server: Google Cloud Storage without retention and holds."""
    yield from _serving(FakeGcs(tmp_path_factory.mktemp("fake-gcs")))


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory):
    """A Kubernetes control plane; its `new_namespace()` keeps one test's objects from another's."""
    with ControlPlane(tmp_path_factory.mktemp("kubernetes")) as control_plane:
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
