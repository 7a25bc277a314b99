"""Members whose peers change to TLS and back, each at its own start."""

from __future__ import annotations

from rootcellar.agent.etcd_config import EtcdConfig


class Changing:
    """One etcd of the testbed.  What it is started with is told by `url`, as in druid's ConfigMap."""

    def __init__(self, etcd, line, name):
        self.flags = []
        self.etcd = etcd.make(line, name, flags=self.flags)
        self.old_url = self.etcd.peer_url
        self.new_url = self.old_url.replace("http:", "https:")

    def give(self, url, authority):
        """From its next start on."""
        pair = authority.server
        self.etcd.peer_url = url
        self.flags[:] = []
        if url.startswith("https"):
            self.flags += ["--peer-client-cert-auth", "--peer-trusted-ca-file", str(authority.ca)]
            self.flags += ["--peer-cert-file", str(pair.certificate), "--peer-key-file", str(pair.key)]

    @property
    def configured(self):
        values = {"initial-advertise-peer-urls": self.etcd.peer_url, "listen-peer-urls": self.etcd.peer_url}
        return EtcdConfig(values, self.etcd.name)

    def again(self):
        """As the wrapper does when it was told to stop."""
        self.etcd.stop()
        self.etcd.start_soon()


def three(etcd, line):
    """Started, and whole, over plain HTTP."""
    members = [Changing(etcd, line, f"m{number}") for number in (1, 2, 3)]
    together = ",".join(each.etcd.initial_cluster for each in members)
    for each in members:
        each.etcd.initial_cluster = together
        each.etcd.start_soon()
    for each in members:
        each.etcd.wait_healthy()
    return members
