"""What the tests of BackupEntries share: a bucket, a control plane's namespace, and a controller."""

from __future__ import annotations

from datetime import timedelta

from rootcellar.operator.backupentry.controller import add_entry_controller
from rootcellar.operator.backupentry.run import EntrySettings
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from tests.operator.conftest import Kubectl, Operator, keys_of
from tests.stores.places import s3_store

UID = "1b2c3d"


class Scene(Kubectl):
    """A garden namespace with a secret, the control plane's namespace `shoot--X--a`, and a bucket.

    As it comes that is an S3; for another store `type_`, `keys` and `opened` are told.
    """

    def __init__(self, control_plane, bucket, directory, *, type_="S3", keys=None, opened=s3_store):
        super().__init__(control_plane, BACKUP_ENTRIES, control_plane.new_namespace())
        self.control_plane, self.bucket, self.directory = control_plane, bucket, directory
        self.shoot = f"shoot--{self.namespace}--a"
        self.name = f"{self.shoot}--{UID}"
        self.new_namespace(self.shoot)
        self.type_, self.opened = type_, opened
        self.keys = keys_of(bucket) if keys is None else keys
        self.secret("entry", self.keys)
        # A class of this test's own: all entries are in one API server.
        self.class_ = self.namespace

    def spec(self, **more):
        return {
            "type": self.type_,
            "class": self.class_,
            "region": "eu-1",
            "bucketName": self.bucket.name,
            "secretRef": {"name": "entry", "namespace": self.namespace},
            **more,
        }

    def operator(self, *, ignore_annotation=False, grace=timedelta(0), looks=None):
        settings = EntrySettings(
            types={"S3", "aws", "gcp", "azure", "local"},
            classes={self.class_},
            directory=self.directory,
            tokens=self.directory,
            host_path="/buckets",
            grace=grace,
            looks=looks,
        )
        return Operator(
            self.control_plane,
            lambda manager, log: add_entry_controller(
                manager, settings, log=log, ignore_annotation=ignore_annotation
            ),
        )

    def store(self, prefix):
        return self.opened(self.bucket, prefix)

    def put(self, *names, count=1):
        for name in names:
            for number in range(count):
                self.store(name).put(f"etcd-main/v2/{number}", [b"x"])

    def lies(self, name):
        return [info.key for info in self.store(name).list()]

    def finalizers(self):
        return self.read_secret("entry")["metadata"].get("finalizers", [])
