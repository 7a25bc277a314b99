"""All options and operands, each declared once.  See `options` for what a declaration gives."""

from __future__ import annotations

from rootcellar.cli import values
from rootcellar.cli.console import FORMATS
from rootcellar.cli.options import Operand, Option, switch

# everywhere

CONFIG = Option(
    "--config",
    values.path,
    "FILE",
    "the configuration file (else ./rootcellar.yaml, else /etc/rootcellar/config.yaml)",
    env=True,
)
OUTPUT = Option(
    "--output",
    values.choice(*FORMATS),
    "FORMAT",
    "text for people; json or yaml for programs",
    env=True,
    default="text",
    choices=FORMATS,
)
QUIET = switch("--quiet", "no progress and no remarks; results, warnings and errors alone", short="-q")
DEBUG = switch("--debug", "show where in the program an error arose")
HELP = switch("--help", "say what there is, and stop", short="-h")
VERSION = switch("--version", "say which rootcellar this is, and stop")

EVERYWHERE: tuple[Option[object], ...] = (CONFIG, OUTPUT, QUIET, DEBUG, HELP, VERSION)

# stores

STORE_VARIABLE = "ROOTCELLAR_STORE"
STORE = Operand(
    "STORE",
    values.text,
    "a URL (file:///path, s3://bucket/prefix), @NAME from the configuration, or a path",
    optional=True,
)
OBJECT_KEY = Option(
    "--object", values.text, "KEY", "one object of the store that is a backup by itself, whatever its name"
)
BACKUP = Operand(
    "BACKUP",
    values.text,
    "a snapshot file, a directory of kops or OpenShift, a data directory; or an object: URL/KEY, @NAME/KEY",
)
BACKUP_CREDENTIALS = Option(
    "--backup-credentials", values.text, "FORM", "the same as --credentials, for where BACKUP is", env=True
)
CREDENTIALS = Option(
    "--credentials",
    values.text,
    "FORM",
    "where the store's keys are: dir:PATH, file:PATH, env:PREFIX or ambient",
    env=True,
)
TIMELINE = Option("--timeline", values.count, "N", "a timeline other than the newest")

OBJECTS = switch("--objects", "also every object, chain by chain")
OBJECT = Operand("OBJECT", values.text, "a snapshot's key, or its name alone")

# etcd

ENDPOINTS = Option(
    "--endpoints",
    values.names,
    "URLS",
    "etcd's client URLs, with commas between",
    env=True,
    setting="etcd.endpoints",
)
CACERT = Option(
    "--cacert", values.path, "FILE", "whom etcd's certificate must come from", env=True, setting="etcd.tls.ca"
)
CERT = Option("--cert", values.path, "FILE", "our client certificate", env=True, setting="etcd.tls.cert")
CERT_KEY = Option("--key", values.path, "FILE", "its private key", env=True, setting="etcd.tls.key")
SERVER_NAME = Option(
    "--server-name",
    values.text,
    "NAME",
    "the name to expect in etcd's certificate instead of the host",
    env=True,
    setting="etcd.tls.server-name",
)
USER = Option("--user", values.text, "NAME", "etcd user", env=True, setting="etcd.user")
PASSWORD_FILE = Option("--password-file", values.path, "FILE", "a file with the user's password", env=True)
PASSWORD_VARIABLE = "ROOTCELLAR_PASSWORD"  # noqa: S105 - the variable's name
PASSWORD_SETTING = "etcd.password"  # noqa: S105 - the setting's name
TIMEOUT = Option(
    "--timeout", values.span, "DURATION", "how long to wait for an answer of etcd", env=True, default="10s"
)

CONNECTION: tuple[Option[object], ...] = (
    ENDPOINTS,
    CACERT,
    CERT,
    CERT_KEY,
    SERVER_NAME,
    USER,
    PASSWORD_FILE,
    TIMEOUT,
)

# the agent

STATE_DIR = Option(
    "--state-dir",
    values.path,
    "DIR",
    "where commands on this machine find the running agent (default: /run/rootcellar, or this user's)",
    env=True,
    setting="agent.state-dir",
)
LEAD = Option(
    "--lead",
    values.choice("auto", "follow", "always"),
    "RULE",
    "follow: write backups while the endpoint is etcd's leader; always: write them; "
    "auto: follow with one endpoint, always with several",
    env=True,
    setting="agent.lead",
    default="auto",
    choices=("auto", "follow", "always"),
)
GRACE = Option(
    "--grace",
    values.span,
    "DURATION",
    "how long a last delta may take when the agent is told to stop",
    env=True,
    setting="agent.grace",
    default="20s",
)
LISTEN = Option(
    "--listen",
    values.text,
    "ADDRESS:PORT",
    "where the agent answers HTTP; port 0 is any that is free",
    env=True,
    setting="agent.http.listen",
    default="127.0.0.1:0",
)
LOG_FORMAT = Option(
    "--log-format",
    values.choice("text", "json"),
    "FORMAT",
    "one line per event: text (key=value), or json",
    env=True,
    default="text",
    choices=("text", "json"),
)
CHECK_CONFIG = switch("--check-config", "say whether the agent could start, and stop")

# holds

REASON = Option("--reason", values.text, "TEXT", "why, for whoever finds it")
THROUGH = Option("--through", values.count, "R", "also keep what leads from the full to revision R")
HOLD = Operand("HOLD", values.text, "a hold's id, as `hold list` shows it")

# retention

POLICY = Option(
    "--policy",
    values.policy,
    "POLICY",
    "which fulls to keep: hourly=24,daily=7,weekly=4,monthly=12,yearly=3 (any of these), limit=7 or "
    "exponential (default: the store's retention)",
)
MINIMUM = Option(
    "--minimum", values.count, "N", "newest provable chains that stay whatever the policy says (default: 1)"
)
DELTAS_FOR = Option(
    "--deltas-for",
    values.span,
    "DURATION",
    "for how long every second can be restored (default: as long as the policy keeps the full)",
)

# points of a history

TO_REVISION = Option("--to-revision", values.count, "R", "everything up to revision R, and nothing above")
TO_TIME = Option(
    "--to-time",
    values.moment,
    "TIME",
    "everything received at or before TIME: 2026-11-21T09:32:13Z, or '10m ago'",
)

AT = Option(
    "--at",
    values.point,
    "POINT",
    "a revision, a time (2026-11-21T09:32:13Z, '10m ago') or latest",
    default="latest",
)
EXCLUDE = Option(
    "--exclude", values.text, "OBJECT", "do without this object, for it is damaged", repeated=True
)
KEY = Operand("KEY", values.key, "a key, as etcd has it")
PREFIX = Option("--prefix", values.key, "PREFIX", "only keys that begin with it")
LIMIT = Option("--limit", values.count, "N", "at most so many")
LONG = switch("--long", "also revision, version, size, lease and what Kubernetes stored there", short="-l")
DEPTH = Option("--depth", values.count, "N", "segments of a key that make a group", default="2")
FROM = Option("--from", values.point, "POINT", "a revision, a time or latest: what it was", default="latest")
TO = Option("--to", values.point, "POINT", "a revision, a time or latest: what it is", default="latest")
AGAINST = Option("--against", values.text, "STORE", "another backup to compare with, at --to")
LIVE = switch("--live", "compare with the live etcd, as it is now")
REWRITTEN = switch("--rewritten", "also keys that were written again with what they held before")
VALUES = switch("--values", "also what the keys hold")
EXIT_CODE = switch("--exit-code", "end with 1 where anything differs")
NO_VALUES = switch("--no-values", "keys alone, without what they hold")
FORMAT = Option(
    "--format",
    values.choice("jsonl", "raw"),
    "FORMAT",
    "jsonl: a line of JSON for each key; raw: a file for each, below -o DIR",
    default="jsonl",
    choices=("jsonl", "raw"),
)
COMPRESSION = Option(
    "--compression",
    values.choice("gzip", "zlib", "none", "zstd"),
    "HOW",
    "gzip, zlib or none, which etcdbrctl reads, too; zstd, which it does not "
    "(default: the store's, else gzip, and zstd where it is encrypted)",
    choices=("gzip", "zlib", "none", "zstd"),
)
UNENCRYPTED = switch("--unencrypted", "go on in the clear, where backups were encrypted up to now")
IDENTITY = Option(
    "--identity",
    values.path,
    "FILE",
    "private keys that open what is encrypted: a file, or a directory of them (default: the store's)",
    env=True,
)
NEW_IDENTITY = Option("--out", values.path, "FILE", "where the new identity shall be", short="-o")
IDENTITY_FILE = Operand("FILE", values.path, "a file or directory with identities")
RECIPIENT = Operand("RECIPIENT", values.text, "a public key, age1...; what is known of it may be its key id")
LIVE_HASH = Option(
    "--live-hash",
    values.choice("never", "full"),
    "WHEN",
    "full: ask etcd for its HashKV behind a full, which reads all keys under a lock; never: do not",
    env=True,
    default="never",
    choices=("never", "full"),
)
FINAL = switch("--final", "promise that nothing will follow, as before a migration")
TAKE_OVER = Option("--take-over", values.text, "REASON", "go on in a prefix that belongs to another cluster")
TAKEN_AT = Option(
    "--taken-at",
    values.moment,
    "TIME",
    "when the backup was taken (default: what its name, notes or file say)",
)
ONLY = Option("--only", values.key, "KEY", "this key alone", repeated=True)
OVERWRITE_NEWER = switch("--overwrite-newer", "also keys that were written since, or made anew")
DELETE_EXTRA = switch("--delete-extra", "also delete keys that the backup does not have")
LEASES = Option(
    "--leases",
    values.choice("renew", "none"),
    "RULE",
    "renew: a new lease of the old TTL for the keys of an old one; none: keys without leases",
    default="renew",
    choices=("renew", "none"),
)
MAX_AGE = Option(
    "--max-age",
    values.span,
    "DURATION",
    "how old the newest backup may be",
    setting="policy.backup-age",
    default="1d",
)
PROOF_AGE = Option(
    "--proof-age",
    values.span,
    "DURATION",
    "how old the newest replay or boot may be before it counts no longer",
    setting="policy.proof-age",
    default="7d",
)

# asking and writing

YES = switch("--yes", "do not ask")
DRY_RUN = switch("--dry-run", "say what would be done, and do nothing")
OUT = Option("--out", values.path, "FILE", "write it to FILE", short="-o")

# demo

KEEP = switch("--keep", "leave everything there to look at")

# completion

SHELL = Operand("SHELL", values.choice("bash", "zsh", "fish"), "bash, zsh or fish")
WORDS = Operand("WORD", str, "what has been typed behind `rootcellar`", optional=True, repeated=True)

# verify

LEVEL = Option(
    "--level",
    values.choice("1", "2", "3", "4", "5"),
    "N",
    "how much to prove: 1 listed, 2 and hashes, 3 and structure, 4 and replayed, 5 and booted (default: 4)",
    choices=("1", "2", "3", "4", "5"),
)
CHECKS = Option(
    "--checks",
    values.names,
    "NAMES",
    "exactly these: listed, hash, structure, replayed, compared, booted, with commas between",
)
ALL_CHAINS = switch("--all", "every chain of the timeline, not only the newest")
SCRATCH = Option(
    "--scratch", values.path, "DIR", "where to build what is only looked at (default: TMPDIR)", env=True
)
ETCD = Option("--etcd", values.path, "FILE", "the etcd to start (default: the one on PATH)", env=True)
NO_RECORD = switch("--no-record", "do not file the proof in the store")

# copy

SOURCE = Operand("SOURCE", values.text, "the store to copy from: a URL, @NAME or a directory")
DESTINATION = Operand("DESTINATION", values.text, "the store to copy into: a URL, @NAME or a directory")
SOURCE_CREDENTIALS = Option(
    "--source-credentials", values.text, "FORM", "the same as --credentials, for SOURCE", env=True
)
MAX_BACKUPS = Option("--max-backups", values.count, "N", "the newest N fulls alone, with their deltas")
MAX_BACKUP_AGE = Option(
    "--max-age", values.span, "DURATION", "fulls that are no older, with their deltas: 7d, 12h"
)
ONE_CHAIN = Option("--chain", values.text, "FULL", "the chain of this full alone: its key, or its name")
UP_TO_REVISION = Option(
    "--to-revision", values.count, "R", "no more than a restore to revision R needs (whole objects)"
)
WAIT_FOR_FINAL = switch("--wait-for-final", "wait until one of the newest fulls of SOURCE is final")
WAIT = Option(
    "--wait", values.span, "DURATION", "how long to wait for it, then copy what is there (default: for ever)"
)
PARALLEL = Option("--parallel", values.count, "N", "chains to copy at the same time", default="4")

# restore

TRIAL = switch("--trial", "only to look at: do not tell the store that history forks here")
DATA_DIR = Option(
    "--data-dir",
    values.text,
    "DIR",
    "where etcd's data shall be; of several members each gets DIR/NAME, or say NAME=DIR for each",
    repeated=True,
)
FOR_ETCD = Option(
    "--for-etcd",
    values.text,
    "X.Y",
    "the etcd that will run on it: that of the backup (the default) or a newer one",
)
BUMP_REVISION = Option(
    "--bump-revision",
    values.count,
    "N",
    "go on N revisions later, so that watchers never see one twice; 0 for none "
    "(default: 1,000,000,000 for Kubernetes' keys, else none)",
)
KEEP_HISTORY = switch("--keep-history", "keep what recorded compactions have superseded")
COMPACT_TO = Option("--compact-to", values.count, "R", "drop what revision R supersedes")
MEMBER = Option(
    "--member",
    values.text,
    "NAME=URL",
    "a member of the new cluster and its peer URL (default: default=http://localhost:2380)",
    repeated=True,
)
NAME = Option("--name", values.text, "NAME", "the member that this host builds, when there are several")
TOKEN = Option("--token", values.text, "TOKEN", "the new cluster's token (default: a fresh random one)")
PLAN = Option("--plan", values.path, "FILE", "carry out the plan that --dry-run -o wrote")
REPLACE = switch("--replace", "replace the etcd data that is there; it is kept in quarantine beside the new")
QUOTA = Option(
    "--quota",
    values.size,
    "SIZE",
    "what etcd will run with as --quota-backend-bytes; 0 for no limit (default: 2GiB)",
    setting="etcd.quota",
)
