import pytest

LEASE_RULES = [
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "list", "patch"]}
]


@pytest.fixture
def namespace(control_plane):
    """A namespace of this test's own."""
    return control_plane.new_namespace()


@pytest.fixture
def account(control_plane, namespace, tmp_path):
    """A service account that may read and patch leases there."""
    return control_plane.service_account(namespace, LEASE_RULES, tmp_path / "serviceaccount")
