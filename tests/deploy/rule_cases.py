"""When each alert fires, and when it does not: series as promtool writes them, one sample a minute.

`1x60` is 1 for an hour, `0+60x30` grows by 60 a minute for half an hour.  Braces hold labels beyond job and
instance.
"""

from __future__ import annotations

from dataclasses import dataclass, field

HOUR, DAY = 60, 1440
"""In minutes."""


@dataclass(frozen=True)
class Case:
    """`fires` None: it does not.  Else what the alert's labels have beyond the usual.  `told` is `$value` in
    words.
    """

    alert: str
    when: str
    at: int
    series: dict[str, str]
    fires: dict[str, str] | None = None
    told: str = ""
    usual: dict[str, str] = field(default_factory=lambda: {"job": "rootcellar", "instance": "vm-1:9378"})


LEADS = {"rootcellar_leader": "1x20000"}
FOLLOWS = {"rootcellar_leader": "0x20000"}
DELTAS = {'rootcellar_expected_interval_seconds{kind="delta"}': "300x20000"}
FULLS = {'rootcellar_expected_interval_seconds{kind="full"}': "21600x20000"}
PROOFS = {'rootcellar_expected_proof_interval_seconds{check="replayed"}': "86400x20000"}
BOOTS = {'rootcellar_expected_proof_interval_seconds{check="booted"}': "604800x20000"}
AGE = "rootcellar_recovery_point_age_seconds"
FULL_AT = 'rootcellar_latest_timestamp_seconds{kind="full"}'
FULL_REVISION = 'rootcellar_latest_revision{kind="full"}'
POINT = "rootcellar_recovery_point_revision"
REPLAYED = 'rootcellar_last_proof_age_seconds{check="replayed"}'
BOOTED = 'rootcellar_last_proof_age_seconds{check="booted"}'
LISTED = 'rootcellar_last_proof_age_seconds{check="listed"}'
FAILED = 'rootcellar_last_proof_failed{check="hash"}'
LAG = 'rootcellar_store_lag_seconds{store="second"}'
BEHIND_EACH = {'rootcellar_expected_store_lag_seconds{store="second"}': "0x20000"}
NIGHTLY = {'rootcellar_expected_store_lag_seconds{store="second"}': "86400x20000"}
STANDBY = 'rootcellar_standby_active{store="second-standby"}'
LEASES = 'rootcellar_lease_failures_total{lease="full",error="kube-denied"}'
JOB_FAILURES = "rootcellar_job_failures_total"
WORKS = "rootcellar_controller_leader"
WAITING = 'rootcellar_controller_queue_oldest_seconds{controller="rootcellar-backupentry"}'
RECONCILES = "rootcellar_controller_reconcile_seconds_count"
SILENCE = 'rootcellar_watch_silence_seconds{kind="backupentries"}'
ORPHANED = "rootcellar_entry_orphaned_total"


def fault(name: str, samples: str) -> dict[str, str]:
    return {f'rootcellar_fault{{fault="{name}"}}': samples}


CASES = [
    Case(
        "RecoveryPointOld",
        "the recovery point ages",
        18,
        {**LEADS, **DELTAS, AGE: "0+60x30"},
        {},
        "18m 0s",
    ),
    Case(
        "RecoveryPointOld", "it is renewed each period", 60, {**LEADS, **DELTAS, AGE: "30 150 290 20 160x90"}
    ),
    Case("RecoveryPointOld", "a follower remembers an old one", 60, {**FOLLOWS, **DELTAS, AGE: "0+60x90"}),
    Case("NoRecoveryPoint", "a leader stores nothing", 16, {**LEADS, **DELTAS}, {}),
    Case("NoRecoveryPoint", "it has one after ten minutes", 60, {**LEADS, **DELTAS, AGE: "_x9 5x90"}),
    Case("NoRecoveryPoint", "the agent has no store", 60, LEADS),
    Case(
        "FullOverdue",
        "nine hours passed and ten minutes, with changes",
        9 * HOUR + 11,
        {**LEADS, **FULLS, FULL_AT: "0x20000", FULL_REVISION: "5x20000", POINT: "9x20000"},
        {"kind": "full"},
        "9h 11m 0s",
    ),
    Case(
        "FullOverdue",
        "it is within the schedule",
        7 * HOUR,
        {**LEADS, **FULLS, FULL_AT: "0x20000", FULL_REVISION: "5x20000", POINT: "9x20000"},
    ),
    Case(
        "FullOverdue",
        "nothing has changed since the last one",
        3 * DAY,
        {**LEADS, **FULLS, FULL_AT: "0x20000", FULL_REVISION: "9x20000", POINT: "9x20000"},
    ),
    Case(
        "FullOverdue",
        "a follower remembers an old one",
        3 * DAY,
        {**FOLLOWS, **FULLS, FULL_AT: "0x20000", FULL_REVISION: "5x20000", POINT: "9x20000"},
    ),
    Case(
        "ProofOld",
        "a daily proof is not made for 38 hours",
        38 * HOUR,
        {**LEADS, **PROOFS, REPLAYED: "0+60x20000"},
        {"check": "replayed"},
        "1d 14h 0m 0s",
    ),
    Case(
        "ProofOld",
        "a weekly boot is not tried for eleven days, with daily replays",
        11 * DAY,
        {**LEADS, **PROOFS, **BOOTS, REPLAYED: "9x20000", BOOTED: "0+60x20000"},
        {"check": "booted"},
        "11d 0h 0m 0s",
    ),
    Case(
        "ProofOld",
        "a weekly boot is six days old, with daily replays",
        6 * DAY,
        {**LEADS, **PROOFS, **BOOTS, REPLAYED: "9x20000", BOOTED: "0+60x20000"},
    ),
    Case("ProofOld", "it is made each day", 38 * HOUR, {**LEADS, **PROOFS, REPLAYED: "0+60x1440 0+60x1440"}),
    Case(
        "ProofOld",
        "there is no schedule, and nine days passed",
        9 * DAY,
        {**LEADS, REPLAYED: "0+60x20000"},
        {},
        "9d 0h 0m 0s",
    ),
    Case("ProofOld", "there is no schedule, and a week passed", 7 * DAY, {**LEADS, REPLAYED: "0+60x20000"}),
    Case("NeverProven", "a day passed without any", DAY + 1, {**LEADS, AGE: "9x20000"}, {}),
    Case(
        "NeverProven",
        "only a listing was looked at",
        DAY + 1,
        {**LEADS, AGE: "9x20000", LISTED: "9x20000"},
        {},
    ),
    Case(
        "NeverProven",
        "one is proven in the evening",
        DAY + 1,
        {**LEADS, AGE: "9x20000", REPLAYED: "_x700 9x9000"},
    ),
    Case("ProofFailed", "the newest proof failed", 5, {FAILED: "0x3 1x30"}, {"check": "hash"}),
    Case("ProofFailed", "another passed since", 9, {FAILED: "0x3 1x3 0x30"}),
    Case("UploadDamaged", "an object is not what was sent", 1, fault("damaged", "1x9"), {"fault": "damaged"}),
    Case("UploadDamaged", "a full has made good for it", 9, fault("damaged", "1x3 0x30")),
    Case(
        "MirrorLag",
        "nothing is copied for half an hour",
        31,
        {**LEADS, **BEHIND_EACH, LAG: "0+60x60"},
        {"store": "second"},
        "31m 0s",
    ),
    Case("MirrorLag", "it catches up in time", 60, {**LEADS, **BEHIND_EACH, LAG: "0+60x14 0x60"}),
    Case("MirrorLag", "it is filled each night", 20 * HOUR, {**LEADS, **NIGHTLY, LAG: "0+60x20000"}),
    Case("MirrorLag", "a follower remembers an old one", 60, {**FOLLOWS, **BEHIND_EACH, LAG: "0+60x90"}),
    Case("StandbyActive", "it has taken over", 1, {STANDBY: "1x9"}, {"store": "second-standby"}),
    Case("StandbyActive", "the first store is back", 9, {STANDBY: "1x3 0x30"}),
    Case(
        "LeasesFailing",
        "each renewal is refused",
        20,
        {LEASES: "0+1x30"},
        {"lease": "full"},
        "15",
    ),
    Case("LeasesFailing", "one renewal met another writer", 60, {LEASES: "0x20 1x60"}),
    Case(
        "Degraded",
        "the store is away for long",
        15,
        fault("store-unavailable", "0x2 1x30"),
        {"fault": "store-unavailable"},
    ),
    Case("Degraded", "the store is away for a moment", 30, fault("store-unavailable", "0x2 1x5 0x30")),
    Case("Degraded", "the fault has an alert of its own", 30, fault("etcd-nospace", "1x60")),
    Case("Degraded", "a proof failed, which has one too", 30, fault("proof", "1x60")),
    Case("Down", "one does not answer", 7, {"up": "1 0x30"}, {}),
    Case("Down", "no agent is scraped at all", 7, {'up{job="others",instance="x"}': "1x30"}, {}, usual={}),
    Case("Down", "it is back within five minutes", 30, {"up": "1 0x3 1x30"}),
    Case(
        "NoLeader",
        "both follow",
        7,
        {'rootcellar_leader{instance="a"}': "0x30", 'rootcellar_leader{instance="b"}': "0x30"},
        {},
        usual={"job": "rootcellar"},
    ),
    Case(
        "NoLeader",
        "the lead goes from one to the other",
        30,
        {'rootcellar_leader{instance="a"}': "1x9 0x40", 'rootcellar_leader{instance="b"}': "0x11 1x40"},
    ),
    Case(
        "NoLeader",
        "another cluster of the same job has one",
        7,
        {
            'rootcellar_leader{instance="a",cluster="one"}': "0x30",
            'rootcellar_leader{instance="b",cluster="two"}': "1x30",
        },
        {"cluster": "one"},
        usual={"job": "rootcellar"},
    ),
    Case(
        "StoreErrors",
        "calls are refused",
        20,
        {'rootcellar_store_errors_total{verb="put",error="denied"}': "0+1x30"},
        {"error": "denied"},
        "15",
    ),
    Case(
        "StoreErrors",
        "one call in an hour fails",
        60,
        {'rootcellar_store_errors_total{verb="put",error="transient"}': "0x40 1x40"},
    ),
    Case(
        "StoreErrors",
        "what is asked for is not there",
        20,
        {'rootcellar_store_errors_total{verb="stat",error="not-found"}': "0+9x30"},
    ),
    Case(
        "FencedRepeatedly",
        "two agents take turns",
        60,
        {'rootcellar_capture_failures_total{fault="fenced"}': "1x20 2x20 3x10 4x60"},
        {"fault": "fenced"},
        "3",
    ),
    Case(
        "FencedRepeatedly",
        "a person took one full",
        60,
        {'rootcellar_capture_failures_total{fault="fenced"}': "0x20 1x60"},
    ),
    Case("EtcdNoSpace", "the quota is reached", 3, fault("etcd-nospace", "1x30"), {"fault": "etcd-nospace"}),
    Case("EtcdNoSpace", "the alarm was disarmed", 9, fault("etcd-nospace", "1x5 0x30")),
    Case("EtcdCorrupt", "the alarm is raised", 1, fault("etcd-corrupt", "1x30"), {"fault": "etcd-corrupt"}),
    Case("EtcdCorrupt", "the alarm was disarmed", 9, fault("etcd-corrupt", "1x5 0x30")),
    Case(
        "PruneFailing",
        "each attempt fails",
        60,
        {f'{JOB_FAILURES}{{name="prune"}}': "0+1x60"},
        {"name": "prune"},
        "60",
    ),
    Case("PruneFailing", "one attempt failed", 60, {f'{JOB_FAILURES}{{name="prune"}}': "0x20 1x60"}),
    Case(
        "JobFailing",
        "each attempt fails",
        60,
        {f'{JOB_FAILURES}{{name="compact"}}': "0+1x60"},
        {"name": "compact"},
        "60",
    ),
    Case("JobFailing", "one attempt failed", 60, {f'{JOB_FAILURES}{{name="compact"}}': "0x20 1x60"}),
    Case("JobFailing", "the job has an alert of its own", 60, {f'{JOB_FAILURES}{{name="prune"}}': "0+1x60"}),
    Case("ClockJump", "the clock was set", 30, {"rootcellar_clock_jumps_total": "0x20 1x90"}, {}),
    Case("ClockJump", "that was two hours ago", 150, {"rootcellar_clock_jumps_total": "0x20 1x200"}),
    Case(
        "OperatorNoLeader",
        "two pods wait",
        6,
        {WORKS: "0x60", f'{WORKS}{{instance="vm-2:9378"}}': "0x60"},
        {},
        usual={"job": "rootcellar"},
    ),
    Case(
        "OperatorNoLeader",
        "one of two works",
        30,
        {WORKS: "0x60", f'{WORKS}{{instance="vm-2:9378"}}': "1x60"},
    ),
    Case(
        "OperatorBehind",
        "an object has waited too long",
        25,
        {WORKS: "1x60", WAITING: "0+60x60"},
        {"controller": "rootcellar-backupentry"},
        "25m 0s",
    ),
    Case("OperatorBehind", "the pod waits for its turn itself", 60, {WORKS: "0x90", WAITING: "0+60x90"}),
    Case(
        "OperatorFailing",
        "the store denies us",
        120,
        {f'{RECONCILES}{{controller="rootcellar-backupentry",result="denied"}}': "0+1x200"},
        {"controller": "rootcellar-backupentry", "result": "denied"},
        "60",
        usual={"job": "rootcellar"},
    ),
    Case(
        "OperatorFailing",
        "others write the same objects",
        120,
        {f'{RECONCILES}{{controller="rootcellar-backupentry",result="kube-conflict"}}': "0+1x200"},
    ),
    Case(
        "OperatorFailing",
        "it failed for half an hour",
        120,
        {f'{RECONCILES}{{controller="rootcellar-backupentry",result="transient"}}': "0+1x30 30x200"},
    ),
    Case(
        "OperatorBlind",
        "the watch hangs",
        16,
        {SILENCE: "0+60x60"},
        {"kind": "backupentries"},
        "16m 0s",
    ),
    Case("OperatorBlind", "bookmarks come", 60, {SILENCE: "50 20 60 10x90"}),
    Case("OperatorOrphans", "an entry went without its secret", 30, {ORPHANED: "0x20 1x60"}, {}, "1"),
    Case("OperatorOrphans", "that was long ago", 1600, {ORPHANED: "0x20 1x1700"}),
]
