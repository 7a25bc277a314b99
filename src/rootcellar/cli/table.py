"""All verbs, with their operands and options.  Help is made of this, so nothing here imports the engine."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rootcellar.cli import flags
from rootcellar.cli.options import Command
from rootcellar.cli.table_beside import DEFRAG, ETCDBRCTL, OPERATOR, WRAPPER

if TYPE_CHECKING:
    from collections.abc import Sequence

RESTORE = Command(
    "restore",
    "build etcd data at any revision or second",
    """Downloads a full, appends the deltas to it, proves the result, and only then puts it in force, in
    one step.  Whatever fails before leaves the old data as it was.  Without --to-revision or --to-time the
    newest captured revision is restored.

    For a cluster of several members, make a plan once and carry it out on each host, or give each a
    --data-dir.""",
    operands=(flags.STORE,),
    options=(
        flags.DATA_DIR,
        flags.TO_REVISION,
        flags.TO_TIME,
        flags.TIMELINE,
        flags.FOR_ETCD,
        flags.BUMP_REVISION,
        flags.KEEP_HISTORY,
        flags.COMPACT_TO,
        flags.MEMBER,
        flags.NAME,
        flags.TOKEN,
        flags.QUOTA,
        flags.EXCLUDE,
        flags.DRY_RUN,
        flags.OUT,
        flags.PLAN,
        flags.REPLACE,
        flags.TRIAL,
        flags.OBJECT_KEY,
        flags.YES,
        flags.IDENTITY,
        flags.CREDENTIALS,
    ),
    examples=(
        "rootcellar restore s3://backups/prod/etcd-main --data-dir /var/lib/etcd",
        "rootcellar restore @main --to-time '10m ago' --data-dir /var/lib/etcd --replace",
        "rootcellar restore @main --dry-run -o plan.json --member a=https://10.0.0.1:2380 \\",
        "    --member b=https://10.0.0.2:2380 --member c=https://10.0.0.3:2380",
        "rootcellar restore --plan plan.json --name a --data-dir /var/lib/etcd",
    ),
)

VERIFY = Command(
    "verify",
    "prove a backup by restoring it",
    """Proves a chain: that its objects are listed, hold their hashes, are sound inside, can be replayed,
    come to the HashKV of the etcd they were taken from, and that a real etcd starts on the result.  What
    could not be checked is said.  The proof is filed in the store, where ls and check find it.""",
    operands=(flags.STORE,),
    options=(
        flags.LEVEL,
        flags.CHECKS,
        flags.TO_REVISION,
        flags.TO_TIME,
        flags.ALL_CHAINS,
        flags.TIMELINE,
        flags.SCRATCH,
        flags.ETCD,
        flags.NO_RECORD,
        flags.OBJECT_KEY,
        flags.IDENTITY,
        flags.CREDENTIALS,
    ),
    examples=("rootcellar verify @main", "rootcellar verify @main --level 5 --all"),
)
LS = Command(
    "ls",
    "what can be got back, and is it proven",
    """Lists the chains of a store with the revisions and times they reach, what is missing between them,
    and what was proven when.  Of several timelines the newest is shown unless told.""",
    operands=(flags.STORE,),
    options=(flags.OBJECTS, flags.TIMELINE, flags.PROOF_AGE, flags.CREDENTIALS),
    examples=("rootcellar ls s3://backups/prod/etcd-main", "rootcellar ls @main --objects --output json"),
)
_LOOKING = (
    flags.AT,
    flags.OBJECT_KEY,
    flags.TIMELINE,
    flags.EXCLUDE,
    flags.SCRATCH,
    flags.IDENTITY,
    flags.CREDENTIALS,
)
KEYS = Command(
    "keys",
    "the keys in a backup at any point",
    """Lists the keys that were there at a revision or a time.  STORE may also be a single snapshot file of
    any tool, or the data directory of an etcd that is stopped.""",
    operands=(flags.STORE,),
    options=(flags.PREFIX, flags.LIMIT, flags.LONG, *_LOOKING),
    examples=("rootcellar keys @main --prefix /registry/secrets/ --at '10m ago' --long",),
)
GET = Command(
    "get",
    "one value out of a backup",
    """Prints a key's value as it was at a revision or a time.  Into a pipe or a file goes the value and
    nothing else.""",
    operands=(flags.STORE, flags.KEY),
    options=(flags.OUT, *_LOOKING),
    examples=("rootcellar get @main /registry/configmaps/default/app --at 2026-11-21T09:00:00Z",),
)
HISTORY = Command(
    "history",
    "what happened to one key",
    "Lists every change of a key that the backup still knows, up to a revision or a time, oldest first.",
    operands=(flags.STORE, flags.KEY),
    options=_LOOKING,
    examples=("rootcellar history @main /registry/leases/kube-system/kube-scheduler",),
)
DIFF = Command(
    "diff",
    "what differs between points, backups, the live etcd",
    """Shows the keys that were added, removed or changed from one point to another.  With --against the
    second point is one of another backup; with --live it is the etcd at --endpoints, as it is now.""",
    operands=(flags.STORE,),
    options=(
        flags.FROM,
        flags.TO,
        flags.AGAINST,
        flags.LIVE,
        flags.PREFIX,
        flags.REWRITTEN,
        flags.VALUES,
        flags.EXIT_CODE,
        flags.TIMELINE,
        flags.EXCLUDE,
        flags.SCRATCH,
        flags.IDENTITY,
        flags.CREDENTIALS,
        *flags.CONNECTION,
    ),
    examples=(
        "rootcellar diff @main --from 120000 --to 123456",
        "rootcellar diff @main --from '1h ago' --live --prefix /registry/configmaps/",
    ),
)
EXTRACT = Command(
    "extract",
    "keys and values, for other programs",
    """Writes keys with their values: a line of JSON for each (docs/cli.md has its members), or a file for
    each in a directory that is new or empty.""",
    operands=(flags.STORE,),
    options=(flags.PREFIX, flags.LIMIT, flags.FORMAT, flags.NO_VALUES, flags.OUT, *_LOOKING),
    examples=(
        "rootcellar extract @main --prefix /registry/secrets/ --at '10m ago' -o secrets.jsonl",
        "rootcellar extract @main --prefix /config/ --format raw -o config/",
    ),
)
SIZES = Command(
    "sizes",
    "what takes the space, by prefix",
    "Counts keys and bytes by prefix: what is live, and what is history that a compaction would drop.",
    operands=(flags.STORE,),
    options=(flags.PREFIX, flags.DEPTH, flags.LIMIT, *_LOOKING),
    examples=("rootcellar sizes @main --limit 20",),
)
SHOW = Command(
    "show",
    "all that is known about one object",
    "Shows what a full's or a delta's name, record, proofs and holds say.",
    operands=(flags.STORE, flags.OBJECT),
    options=(flags.CREDENTIALS,),
    examples=("rootcellar show @main Full-00000000-00000127-1795250723.gz",),
)

CHECK = Command(
    "check",
    "one line and an exit code for monitoring",
    """Says in one line whether a store can be restored from: 0 fine, 1 a warning (nothing proven lately,
    revisions missing between chains), 2 critical (no full, the newest backup too old, an object gone or
    changed, a failed proof), 3 unknown (the store does not answer, the newest backup is of a time to
    come).""",
    operands=(flags.STORE,),
    options=(flags.MAX_AGE, flags.PROOF_AGE, flags.CREDENTIALS),
    examples=("rootcellar check @main --max-age 15m --proof-age 2d",),
)
STATUS = Command(
    "status",
    "whether etcd and the store answer",
    "Asks every endpoint and the store, and says how many revisions are in no backup yet.",
    operands=(flags.STORE,),
    options=(*flags.CONNECTION, flags.CREDENTIALS, flags.STATE_DIR),
)
HOLD_ADD = Command(
    "hold add",
    "keep a full, and what follows it, from being pruned",
    "Writes a hold: a lock that no retention policy goes past, until it is released.",
    operands=(flags.STORE, flags.OBJECT),
    options=(flags.REASON, flags.THROUGH, flags.CREDENTIALS),
    examples=(
        "rootcellar hold add @main Full-00000000-00000127-1795250723.gz --reason 'before the upgrade'",
    ),
)
PRUNE = Command(
    "prune",
    "delete what the retention policy does not keep",
    """Decides on every object, shows what stays and what goes, and why, asks, and deletes.  The newest chain,
    the newest proven one, and whatever a hold, a reader or the store's own retention covers stay whatever the
    policy says.  Also removes what has served: expired pins, old epochs, orphans after a week, ...  Beside an
    agent it works in the agent's epoch, which goes on writing; anywhere else it fences who writes.  With
    --endpoints, or an etcd in the configuration, nothing is deleted while that etcd has a CORRUPT alarm.
    docs/retention.md has the policies.""",
    operands=(flags.STORE,),
    options=(
        flags.POLICY,
        flags.MINIMUM,
        flags.DELTAS_FOR,
        flags.DRY_RUN,
        flags.YES,
        flags.STATE_DIR,
        flags.CREDENTIALS,
        *flags.CONNECTION,
    ),
    examples=(
        "rootcellar prune @main --dry-run",
        "rootcellar prune @main --policy hourly=24,daily=7,weekly=4 --deltas-for 2d --yes",
    ),
)
HOLD_RELEASE = Command(
    "hold release",
    "lift a hold",
    "Lifts a hold.  It stays in the store, with who lifted it and why.",
    operands=(flags.STORE, flags.HOLD),
    options=(flags.REASON, flags.CREDENTIALS),
)
HOLD_LIST = Command(
    "hold list",
    "what is held, by whom, and why",
    "Lists the holds in force.",
    operands=(flags.STORE,),
    options=(flags.CREDENTIALS,),
)

AGENT = Command(
    "agent",
    "keep an etcd backed up, for as long as it runs",
    """Runs beside etcd: stores every change within the period of the configuration, takes fulls on a
    schedule, proves them, and answers HTTP.  Of the agents of one cluster the one beside etcd's leader
    writes.  SIGTERM has it store the last changes and end; SIGHUP has it read its configuration again.
    Without a store it captures nothing.  docs/agent.md says how it bears what goes wrong.""",
    operands=(flags.STORE,),
    options=(
        flags.COMPRESSION,
        flags.LIVE_HASH,
        flags.TAKE_OVER,
        flags.LEAD,
        flags.GRACE,
        flags.LISTEN,
        flags.STATE_DIR,
        flags.LOG_FORMAT,
        flags.ETCD,
        flags.IDENTITY,
        flags.QUOTA,
        flags.CHECK_CONFIG,
        *flags.CONNECTION,
        flags.CREDENTIALS,
    ),
    examples=("rootcellar agent @main", "rootcellar agent --check-config"),
)
_CAPTURING = (
    flags.COMPRESSION,
    flags.UNENCRYPTED,
    flags.LIVE_HASH,
    flags.TAKE_OVER,
    *flags.CONNECTION,
    flags.CREDENTIALS,
    flags.STATE_DIR,
)
SNAPSHOT_FULL = Command(
    "snapshot full",
    "back up all of a live etcd",
    """Streams the database of one member into the store, without keeping it in memory or on disk, and
    records what passed.  etcdbrctl can restore it, too, unless it is encrypted or zstd.  Which privileges
    etcd demands is in docs/privileges.md.""",
    operands=(flags.STORE,),
    options=(flags.FINAL, *_CAPTURING),
    examples=(
        "rootcellar snapshot full s3://backups/prod/etcd-main --endpoints https://10.0.0.1:2379 \\",
        "    --cacert ca.crt --cert client.crt --key client.key",
    ),
)
SNAPSHOT_DELTA = Command(
    "snapshot delta",
    "back up what changed since",
    """Writes what changed since the newest backup in the store, up to now.  Where that is not possible
    (there is no full, etcd has compacted it away, users or roles were changed) it takes a full, and says
    why.  To be called every few minutes.""",
    operands=(flags.STORE,),
    options=_CAPTURING,
    examples=("rootcellar snapshot delta @main",),
)
IMPORT = Command(
    "import",
    "take over what another tool backed up",
    """Checks a database of etcdctl, k3s, RKE2, kops, OpenShift or talosctl, in whatever wrapping, and
    writes it to a store as a full.  The store's prefix must be unused, or hold imports alone: nothing
    tells whether a database is of the same history.""",
    operands=(flags.BACKUP, flags.STORE),
    options=(
        flags.TAKEN_AT,
        flags.COMPRESSION,
        flags.SCRATCH,
        flags.CREDENTIALS,
        flags.BACKUP_CREDENTIALS,
    ),
    examples=("rootcellar import etcd-snapshot-1763717520.zip s3://backups/imported/k3s-1",),
)
COMPACT = Command(
    "compact",
    "fold a full and its deltas into one new full",
    """Restores the newest chain in scratch, leaves out what its last compaction superseded, and writes the
    result as a full, without etcd, and without stopping an agent that captures into the same store.  The
    chain stays until it is pruned.  Where there is nothing to fold, that is said, and all is well.""",
    operands=(flags.STORE,),
    options=(
        flags.TO_REVISION,
        flags.COMPACT_TO,
        flags.COMPRESSION,
        flags.SCRATCH,
        flags.IDENTITY,
        flags.DRY_RUN,
        flags.CREDENTIALS,
    ),
    examples=("rootcellar compact @main", "rootcellar compact @main --to-revision 120000 --dry-run"),
)
COPY = Command(
    "copy",
    "copy backups into another store",
    """Copies fulls, deltas and what is known of them, byte for byte, and checks every byte on its
    way.  What is there already is left alone, so it can be repeated and interrupted at will.  What is
    damaged is told and not copied.  --credentials are those of DESTINATION.""",
    operands=(flags.SOURCE, flags.DESTINATION),
    options=(
        flags.MAX_BACKUPS,
        flags.MAX_BACKUP_AGE,
        flags.ONE_CHAIN,
        flags.UP_TO_REVISION,
        flags.WAIT_FOR_FINAL,
        flags.WAIT,
        flags.PARALLEL,
        flags.DRY_RUN,
        flags.CREDENTIALS,
        flags.SOURCE_CREDENTIALS,
    ),
    examples=(
        "rootcellar copy @main s3://elsewhere/prod/etcd-main",
        "rootcellar copy @main @second --max-backups 3 --wait-for-final --wait 30m",
    ),
)
PUT_BACK = Command(
    "put-back",
    "write keys of a backup into the live etcd",
    """Compares keys of a backup with the live etcd and writes those that are missing or were changed back
    to what they were.  What somebody wrote since is left alone unless told otherwise, and whoever writes
    in between wins.  Asks before it writes.""",
    operands=(flags.STORE,),
    options=(
        flags.PREFIX,
        flags.ONLY,
        flags.OVERWRITE_NEWER,
        flags.DELETE_EXTRA,
        flags.LEASES,
        flags.DRY_RUN,
        flags.YES,
        *_LOOKING,
        *flags.CONNECTION,
    ),
    examples=("rootcellar put-back @main --prefix /registry/configmaps/team-a/ --at '1h ago' --dry-run",),
)

DEMO = Command(
    "demo",
    "a real etcd lost and brought back, in a minute",
    """Starts an etcd of its own in a temporary directory, backs it up while it changes, loses data and
    disk, and restores it to the second before, without touching anything of yours.  Ends with an error if
    anything differs from what the etcd said before it was lost.""",
    options=(flags.ETCD, flags.KEEP),
)

KEY_NEW = Command(
    "key new",
    "make a private key, and show its public one",
    """Writes a new identity to a file that only its owner can read, and prints its recipient, which goes into
    the configuration of whoever writes backups.  Keep copies of the file elsewhere: without it what was
    encrypted for it alone is lost.""",
    options=(flags.NEW_IDENTITY,),
    examples=("rootcellar key new -o restore.key",),
)
KEY_SHOW = Command(
    "key show",
    "the public keys of private ones",
    "Prints the recipient and the key id of each identity in a file, and nothing that is secret.",
    operands=(flags.IDENTITY_FILE,),
    examples=("rootcellar key show restore.key",),
)
KEY_ADD_RECIPIENT = Command(
    "key add-recipient",
    "let another key open what is there",
    """Lets another key open every encrypted backup of a store, without writing one again: the key of each is
    wrapped once more, in the catalogue.  An identity that opens them is needed.  What is written from now on
    is for the recipients of the configuration.""",
    operands=(flags.STORE, flags.RECIPIENT),
    options=(flags.IDENTITY, flags.CREDENTIALS),
    examples=("rootcellar key add-recipient @main AGE1 --identity restore.key",),
)
KEY_REMOVE = Command(
    "key remove",
    "take back what `key add-recipient` gave",
    """Removes what lets a key open backups that were not written for it.  Those that were written for it open
    with it until they are pruned, and who has read one before has read it: this forgets nothing.""",
    operands=(flags.STORE, flags.RECIPIENT),
    options=(flags.CREDENTIALS,),
    examples=("rootcellar key remove @main AGE1",),
)

CONFIG_CHECK = Command(
    "config check",
    "read the configuration and say what is wrong with it",
    """Reads the configuration file, replaces every placeholder, and opens what it names, without asking
    any store or etcd.""",
)
CONFIG_SHOW = Command(
    "config show",
    "what is in force, and where it comes from",
    """Shows the configuration file that is used and the variables that are heard.  Placeholders stay as
    they are, and secrets that stand in the file as themselves are blotted out.""",
)
CONFIG_SCHEMA = Command(
    "config schema",
    "the JSON Schema of the configuration file",
    "Prints the JSON Schema of the configuration file, for editors, and for checks before it is rolled out.",
)

COMPLETION = Command(
    "completion",
    "a script that completes command lines",
    "Prints a script for a shell, to be sourced where it starts.",
    operands=(flags.SHELL,),
    examples=("source <(rootcellar completion bash)",),
)
COMPLETE = Command(
    "complete",
    "what may stand at the end of a command line",
    "Prints what could complete the last word.  For the scripts that `completion` prints.",
    operands=(flags.WORDS,),
)

GROUPS: dict[str, Sequence[Command]] = {
    "back up": (AGENT, SNAPSHOT_FULL, SNAPSHOT_DELTA, IMPORT, COMPACT, COPY),
    "bring back": (LS, RESTORE, VERIFY, PUT_BACK),
    "look into backups": (KEYS, GET, HISTORY, DIFF, SIZES, EXTRACT, SHOW),
    "keep watch": (CHECK, STATUS, PRUNE, HOLD_ADD, HOLD_RELEASE, HOLD_LIST),
    "encrypt": (KEY_NEW, KEY_SHOW, KEY_ADD_RECIPIENT, KEY_REMOVE),
    "beside etcd": (DEFRAG, WRAPPER, ETCDBRCTL),
    "in a cluster": (OPERATOR,),
    "about rootcellar itself": (DEMO, CONFIG_CHECK, CONFIG_SHOW, CONFIG_SCHEMA, COMPLETION),
}
"""The verbs that people are shown, by what they are for."""
COMMANDS: tuple[Command, ...] = (*(command for commands in GROUPS.values() for command in commands), COMPLETE)
