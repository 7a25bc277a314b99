"""What other tools leave behind, made around a real snapshot."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import tarfile
import zipfile

TAIL = 32
K3S_SECONDS, KOPS_SECONDS = 1_732_100_000, 1_732_200_000
OPENSHIFT_DATE = "2026-06-30_120000"


class _Stream(io.RawIOBase):
    """A file that cannot seek: Go writes archives like that, with sizes behind the data."""

    def __init__(self, path):
        self._file = path.open("wb")

    def writable(self):
        return True

    def write(self, data):
        return self._file.write(data)

    def close(self):
        self._file.close()
        super().close()


def k3s_zip(snapshot, path, name="etcd-snapshot-node1-1732100000"):
    """One deflated entry, streamed."""
    with _Stream(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, snapshot)
    return path


def kops_dir(snapshot, path):
    path.mkdir()
    (path / "etcd.backup.gz").write_bytes(gzip.compress(snapshot))
    meta = {"etcdVersion": "3.5.9", "timestamp": str(KOPS_SECONDS), "clusterSpec": {"memberCount": 1}}
    (path / "_etcd_backup.meta").write_text(json.dumps(meta))
    return path


def openshift_dir(snapshot, path, mark=""):
    path.mkdir()
    (path / f"snapshot_{OPENSHIFT_DATE}{mark}.db").write_bytes(snapshot)
    resources = path / f"static_kuberesources_{OPENSHIFT_DATE}{mark}.tar.gz"
    with tarfile.open(resources, "w:gz") as archive:
        archive.addfile(tarfile.TarInfo("static-pod-resources/secret"))
    return path


def _written(path, data):
    path.write_bytes(data)
    return path


def _data_dir(member, path):
    return shutil.copytree(member.data_dir, path)


FORMS = {
    "snapshot": lambda s, top: _written(top / "snapshot.db", s.raw),
    "bare": lambda s, top: _written(top / "bare.db", s.raw[:-TAIL]),
    "gzip": lambda s, top: _written(top / "snapshot.db.gz", gzip.compress(s.raw)),
    "gzip-bare": lambda s, top: _written(top / "bare.gz", gzip.compress(s.raw[:-TAIL])),
    "k3s": lambda s, top: _written(top / "etcd-snapshot-node1-1732100000", s.raw),
    "k3s-zip": lambda s, top: k3s_zip(s.raw, top / "etcd-snapshot-node1-1732100000.zip"),
    "kops": lambda s, top: kops_dir(s.raw, top / "2026-06-30T12:00:00Z-000001"),
    "kops-file": lambda s, top: kops_dir(s.raw, top / "kops") / "etcd.backup.gz",
    "openshift": lambda s, top: openshift_dir(s.raw, top / "backup"),
    "openshift-file": lambda s, top: openshift_dir(s.raw, top / "b") / f"snapshot_{OPENSHIFT_DATE}.db",
    "data-dir": lambda s, top: _data_dir(s.member, top / "default.etcd"),
    "copied-db": lambda s, top: shutil.copy(s.member.data_dir / "member" / "snap" / "db", top / "db"),
}
HASHED = set(FORMS) - {"bare", "gzip-bare", "data-dir", "copied-db"}
