"""What the name of a BackupEntry says: whose backups these are, and where in the bucket they lie.

`<technical id>--<uid>`, as Gardener makes it (extensions/pkg/controller/backupentry/util.go); an entry that
backups are copied from has `source-` before it, and lies where its original does.
"""

from __future__ import annotations

from typing import NamedTuple

from rootcellar.operator.shared.secrets import ETCD_BACKUP, SOURCE_ETCD_BACKUP

_SOURCE = "source-"
_BETWEEN = "--"


class EntryName(NamedTuple):
    """One name, taken apart.  Without a `--` the whole of it is both the technical id and the uid."""

    own: str
    """The name without `source-`: the prefix in the bucket is this and a slash."""
    technical_id: str
    uid: str
    is_source: bool

    @property
    def prefix(self) -> str:
        """Where the objects lie, without the slash."""
        return self.own

    @property
    def secret(self) -> str:
        """The name of its secret in the control plane's namespace."""
        return SOURCE_ETCD_BACKUP if self.is_source else ETCD_BACKUP

    @property
    def namespaces(self) -> tuple[str, ...]:
        """Namespaces that can be the control plane's, the likelier first.

        The seeds' own sample is called `shoot--foo--bar`, like its namespace and without a uid: taken apart
        it would belong to `shoot--foo`.  So the whole name counts where that namespace is not there.
        """
        return tuple(dict.fromkeys((self.technical_id, self.own)))


def parse(name: str) -> EntryName:
    """Take a name apart; both styles of technical id, `shoot-a-b` and `shoot--a--b`, are understood."""
    own = name.removeprefix(_SOURCE)
    technical_id, between, uid = own.rpartition(_BETWEEN)
    if not between:
        technical_id = uid = own
    return EntryName(own, technical_id, uid, own != name)
