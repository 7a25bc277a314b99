"""What objects of extensions.gardener.cloud/v1alpha1 have in common: a status, a reference to a secret.

The schema is Gardener's, field by field, and no field is ours (design section 8).  Texts that Gardener leaves
open (states, types, codes) are open here too; the values it knows are in `shared/gardener.py`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, ClassVar

from msgspec import Meta, field

from rootcellar.kube.crd import Column
from rootcellar.kube.schema import ATOMIC, INT32, INT64, Schema, cel
from rootcellar.operator.shared.part import Part

Moment = Annotated[datetime, Meta(tz=True)]
"""Who writes one cuts it to the second, as Kubernetes' own times are."""
Codes = Annotated[
    tuple[str, ...],
    Meta(description="What kinds of error these are, in the words of Gardener (ERR_...)."),
]


class SecretReference(Part, frozen=True, kw_only=True):
    """Where a secret is."""

    SCHEMA: ClassVar[Schema] = ATOMIC
    name: Annotated[str, Meta(description="Its name.")] = ""
    namespace: Annotated[str, Meta(description="Its namespace.")] = ""


class ExtensionSpec(Part, frozen=True, kw_only=True):
    """What every extension is told.  Nothing of it may change once the object is being deleted."""

    type: Annotated[str, Meta(description="The provider that is responsible, such as aws or S3.")]
    region: Annotated[str, Meta(description="The region that the bucket is in. It cannot change.")]
    secret_ref: Annotated[SecretReference, Meta(description="The credentials for the object store.")]
    provider_config: Annotated[
        dict[str, Any] | None,
        Meta(description="The provider's own configuration, of a kind that it defines."),
    ] = None
    class_: Annotated[
        str | None,
        Meta(
            description="Which of several extensions for one type is meant:"
            " shoot (the default), seed or garden.",
            extra_json_schema=cel(("self == oldSelf", "Value is immutable")),
        ),
    ] = field(name="class", default=None)


class Condition(Part, frozen=True, kw_only=True):
    """One thing that is so, or is not."""

    type: Annotated[str, Meta(description="What it is about.")]
    status: Annotated[str, Meta(description="True, False, Unknown or Progressing.")]
    reason: Annotated[str, Meta(description="Why it came to its status, in one word.")]
    message: Annotated[str, Meta(description="The same for a person.")]
    last_transition_time: Annotated[Moment, Meta(description="When its status last became another one.")]
    last_update_time: Annotated[Moment, Meta(description="When anything of it was last written.")]
    codes: Codes = ()


class LastError(Part, frozen=True, kw_only=True):
    """What went wrong in the last operation."""

    description: Annotated[str, Meta(description="What happened, for a person.")]
    task_id: Annotated[str, Meta(description="Which part of the operation it happened in.")] = field(
        name="taskID", default=""
    )
    codes: Codes = ()
    last_update_time: Annotated[Moment | None, Meta(description="When it was last seen.")] = None


class LastOperation(Part, frozen=True, kw_only=True):
    """What was last done with the object, or is being done."""

    description: Annotated[str, Meta(description="What is happening, for a person.")]
    last_update_time: Annotated[Moment, Meta(description="When this was last written.")]
    progress: Annotated[int, Meta(description="How far it is, in percent.", extra_json_schema=INT32)]
    state: Annotated[
        str, Meta(description="Pending, Processing, Succeeded, Error (tried again), Failed or Aborted.")
    ]
    type: Annotated[str, Meta(description="Create, Reconcile, Delete, Migrate or Restore.")]


class ObjectReference(Part, frozen=True, kw_only=True):
    """An object in the namespace of the one that names it."""

    SCHEMA: ClassVar[Schema] = ATOMIC
    kind: Annotated[str, Meta(description="Its kind.")]
    name: Annotated[str, Meta(description="Its name.")]
    api_version: Annotated[str, Meta(description="The group and version of its kind.")] = ""


class NamedResource(Part, frozen=True, kw_only=True):
    """An object under a name by which `state` refers to it."""

    name: Annotated[str, Meta(description="The name that it has in `state`.")]
    resource_ref: Annotated[ObjectReference, Meta(description="The object.")]


class ExtensionStatus(Part, frozen=True, kw_only=True):
    """What the extension that is responsible tells of the object."""

    conditions: Annotated[
        tuple[Condition, ...], Meta(description="What is so and what is not, beside the last operation.")
    ] = ()
    last_error: Annotated[
        LastError | None, Meta(description="What went wrong; absent while nothing is wrong.")
    ] = None
    last_operation: Annotated[LastOperation | None, Meta(description="What was done last.")] = None
    observed_generation: Annotated[
        int | None,
        Meta(description="The generation that the rest is about.", extra_json_schema=INT64),
    ] = None
    provider_status: Annotated[
        dict[str, Any] | None, Meta(description="What the provider tells, of a kind that it defines.")
    ] = None
    resources: Annotated[
        tuple[NamedResource, ...], Meta(description="Objects that `state` refers to by name.")
    ] = ()
    state: Annotated[
        dict[str, Any] | None, Meta(description="What the provider wants to find again after a migration.")
    ] = None


TYPE = Column("Type", ".spec.type", "the provider that is responsible")
STATE = Column("State", ".status.lastOperation.state", "how the last operation stands")
