"""What tests of BackupBuckets begin with."""

from __future__ import annotations

import itertools
from datetime import timedelta

from rootcellar.operator.backupbucket.controller import add_bucket_controller
from rootcellar.operator.backupbucket.run import BucketSettings
from rootcellar.operator.backupbucket.types import BACKUP_BUCKETS
from rootcellar.operator.backupentry.types import BACKUP_ENTRIES
from rootcellar.stores.backoff import Backoff
from tests.kube.things import wait_until
from tests.operator.conftest import Kubectl, Operator, keys_of

GENERATED_IN = "backupbucket.extensions.gardener.cloud/generated-secret-namespace"
_numbers = itertools.count(1)


class Scene(Kubectl):
    """A garden namespace with a secret, and the name of a bucket that is not there yet."""

    def __init__(self, control_plane, bucket, directory):
        super().__init__(control_plane, BACKUP_BUCKETS, control_plane.new_namespace())
        self.control_plane, self.directory = control_plane, directory
        self.there, self.s3 = bucket, bucket.client()
        self.name = f"made-{next(_numbers)}-{bucket.name}"
        self.keys = keys_of(bucket)
        self.secret("backup", self.keys)
        self.class_ = self.namespace  # of this test's own: all objects are in one API server

    def spec(self, **more):
        return {
            "type": "S3",
            "class": self.class_,
            "region": self.there.region,
            "secretRef": {"name": "backup", "namespace": self.namespace},
            **more,
        }

    def settings(self, *, owner="a cluster", again=timedelta(hours=12), **more):
        return BucketSettings(
            types={"S3", "local", "aws", "azure", "gcp", "openstack", "alicloud"},
            classes={self.class_},
            owner=owner,
            directory=self.directory,
            tokens=self.directory,
            again=again,
            backoff=Backoff(attempts=3, deadline=20, base=0.01, throttled_base=0.01, cap=0.02),
            **more,
        )

    def operator(self, *, ignore_annotation=False, **more):
        settings = self.settings(**more)
        return Operator(
            self.control_plane,
            lambda manager, log: add_bucket_controller(
                manager, settings, log=log, ignore_annotation=ignore_annotation
            ),
        )

    def made(self, **spec):
        """Have a bucket made, and wait for it."""
        self.create(self.name, self.spec(**spec), **{GENERATED_IN: self.namespace})
        return self.stands(self.name, "Create", "Succeeded")

    def deleted(self):
        self.delete(self.name)
        wait_until(lambda: self.is_gone(self.name), "it is gone")

    def says(self, *texts):
        """Wait until its last error has these texts; the object."""

        def said():
            error = self.get(self.name).get("status", {}).get("lastError", {})
            return all(text in error.get("description", "") for text in texts)

        wait_until(said, f"an error that says {texts}")
        return self.get(self.name)

    def conditions(self):
        """Status and reason by type."""
        found = self.get(self.name).get("status", {}).get("conditions", [])
        return {each["type"]: (each["status"], each["reason"]) for each in found}

    def buckets(self):
        return {each["Name"] for each in self.s3.list_buckets()["Buckets"]}

    def entry(self, name, bucket):
        entries = Kubectl(self.control_plane, BACKUP_ENTRIES, self.namespace)
        entries.create(
            name,
            {
                "type": "S3",
                "class": "nobody",
                "region": "x",
                "bucketName": bucket,
                "secretRef": {"name": "backup", "namespace": self.namespace},
            },
        )
        return entries

    def finalizers(self):
        return self.read_secret("backup")["metadata"].get("finalizers", [])
