"""What is done before etcd starts: the facts are gathered, a plan is made of them, and carried out.

No step loses anything: data goes to quarantine by one rename, a restore swaps in one step, and a member is
removed only while a quorum answers without it.  Killed between two steps, the next start finds the facts
changed and plans the rest.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rootcellar.agent.members import LIST_TRIES
from rootcellar.agent.peer_urls import believed
from rootcellar.agent.start_plan import Deed, Facts, StartPlan, StoreFacts, StoreState, plan_start
from rootcellar.agent.threads import within
from rootcellar.agent.validation import Mode, Validation, against_store, keep_guard, validate
from rootcellar.backup.catalogue.catalogue import read_catalogue
from rootcellar.backup.catalogue.chain import Latest, plan_chain
from rootcellar.backup.restore import place
from rootcellar.backup.restore.planner import Wish, plan_restore
from rootcellar.backup.restore.restore import restore
from rootcellar.errors import (
    ChainError,
    ConfigError,
    EtcdError,
    EtcdUnavailableError,
    KubeUnavailableError,
    NothingToRestoreError,
    StoreError,
    TargetError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from rootcellar.agent.members import MemberControl, MemberLeases
    from rootcellar.backup.restore.restore import Restored
    from rootcellar.etcd.answers import Member
    from rootcellar.stores.protocol import Store

_SPARED = timedelta(days=1)
"""No start pushes a quarantine out that is younger: what keeps failing must not eat what it failed on."""
_SILENT_SECONDS = 10.0
"""How long healthy data waits for a store's first answer: captures try for minutes, and no etcd runs here.
One that answers is read to the end, however long that takes.
"""
_log = logging.getLogger(__name__)


def store_facts(store: Store | None) -> StoreFacts:
    """What the store holds.  Never raises for a store that does not answer, or whose credentials cannot be
    read just now: some are read for the first call.
    """
    if store is None:
        return StoreFacts(StoreState.NONE)
    try:
        catalogue = read_catalogue(store)
    except (ConfigError, StoreError) as error:
        return StoreFacts(StoreState.UNREACHABLE, told=error.message)
    if not catalogue.snapshots:
        return StoreFacts(StoreState.EMPTY)
    try:
        latest = plan_chain(catalogue, Latest()).reach
    except (NothingToRestoreError, ChainError) as error:
        return StoreFacts(StoreState.BROKEN, told=error.message)
    pending = (
        catalogue.pending_intent(cluster) for cluster in {each.cluster_id for each in catalogue.intents}
    )
    forks = {intent.cluster_id: intent.revision for intent in pending if intent is not None}
    return StoreFacts(StoreState.HOLDS, latest, forks=forks)


@dataclass(frozen=True, slots=True)
class Home:
    """Where and as whom etcd is to start.

    `initial_cluster` maps member names to peer URLs, in the order of the configuration.  `store` opens the
    store, `control` speaks for a cluster of several.  `namespace` is for the safe guard.  `quota` in bytes.
    """

    data_dir: Path
    name: str
    initial_cluster: Mapping[str, tuple[str, ...]]
    token: str
    quota: int
    store: Callable[[], Store] | None = None
    control: MemberControl | None = None
    leases: MemberLeases | None = None
    namespace: str = ""
    peer_urls: tuple[str, ...] = ()

    @property
    def own_peer_urls(self) -> tuple[str, ...]:
        return self.peer_urls or self.initial_cluster.get(self.name, ())


@dataclass(frozen=True, slots=True)
class Initialized:
    """What was done.  `warnings` are for the log."""

    plan: StartPlan
    found: Validation
    restored: Restored | None = None
    quarantined: Path | None = None
    warnings: tuple[str, ...] = ()

    @property
    def joins(self) -> bool:
        """Whether etcd has to be started as a member of an existing cluster."""
        return self.plan.deed is Deed.JOIN


def initialize(
    home: Home, mode: Mode, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> Initialized:
    """Make the data directory fit to start etcd on.  Raises RootcellarError where it must not be started."""
    if home.data_dir.is_dir():
        with place.locked(home.data_dir):
            place.settle(home.data_dir, now())
    found = validate(home.data_dir, mode, namespace=home.namespace)
    _log.info("%s (%s look): %s", home.data_dir, mode.value, found.finding)
    store, facts = _gather(home, found)
    plan = plan_start(facts)
    warnings = [*facts.found.remarks]
    if facts.store.state in (StoreState.UNREACHABLE, StoreState.BROKEN):
        warnings.append(f"{facts.store.state.value}: {facts.store.told}")
    if plan.error is not None:
        raise plan.error
    _log.info("decided: %s (%s)", plan.deed.value, plan.reason)
    quarantined, restored = _carry_out(home, plan, facts, store, now)
    keep_guard(home.data_dir, home.namespace)
    return Initialized(plan, facts.found, restored, quarantined, tuple(warnings))


def _gather(home: Home, found: Validation) -> tuple[Store | None, Facts]:
    several = len(home.initial_cluster) > 1
    registered, away = _registered(home) if several and found.blank else (None, "")
    cluster = None
    if several and home.control is not None:
        _log.info("the cluster is asked through %s", home.control.endpoints)
        try:
            cluster = home.control.cluster(tries=_tries(home, found, registered))
        except EtcdUnavailableError as error:
            _log.info("the cluster does not answer: %s", error.message)
    # The store is asked only where its answer counts: a healthy member of several starts without it.
    asked = not (several and (cluster is not None or found.valid))
    store, held = _opened(home, found) if asked else (None, StoreFacts(StoreState.NONE))
    if not several and (expected := held.expected(found.cluster_id)) is not None:
        found = against_store(found, expected)
    founders = tuple(home.initial_cluster)
    return store, Facts(home.name, home.own_peer_urls, founders, found, held, cluster, registered, away)


def _registered(home: Home) -> tuple[frozenset[str] | None, str]:
    """Who has lived once, None where that is not known; and why it is not known yet."""
    if home.leases is None:
        return None, ""
    try:
        return home.leases.registered(), ""
    except KubeUnavailableError as error:
        return None, error.message


def _tries(home: Home, found: Validation, registered: frozenset[str] | None) -> int:
    """How often the cluster is asked before it counts as silent.

    Once where nobody has ever lived: it is being founded, and etcd itself looks at its peers once more.
    Twice for a member that starts on its data either way: if it was removed meanwhile, its peers tell it.
    Often for one that is to be moved: a rolling update goes on behind its start, to the next one.
    """
    if found.valid:
        is_to_move = home.own_peer_urls and set(believed(home.data_dir, home.name)) - set(home.own_peer_urls)
        return LIST_TRIES if is_to_move else 2
    return 1 if found.blank and registered == frozenset() else LIST_TRIES


def _opened(home: Home, found: Validation) -> tuple[Store | None, StoreFacts]:
    if home.store is None:
        return None, store_facts(None)
    try:
        store = within(_SILENT_SECONDS, "store", partial(_heard, home.store)) if found.valid else home.store()
    except (ConfigError, StoreError) as error:  # its credentials cannot be read just now
        return None, StoreFacts(StoreState.UNREACHABLE, told=error.message)
    except TimeoutError:
        return None, StoreFacts(StoreState.UNREACHABLE, told=f"no answer within {_SILENT_SECONDS:g} s")
    return store, store_facts(store)


def _heard(open_store: Callable[[], Store]) -> Store:
    """The store, once it has answered."""
    store = open_store()
    next(iter(store.list()), None)
    return store


def _carry_out(
    home: Home, plan: StartPlan, facts: Facts, store: Store | None, now: Callable[[], datetime]
) -> tuple[Path | None, Restored | None]:
    if plan.move is not None:
        _move(home, plan.move)
    if plan.aside:
        _refuse_a_third(home.data_dir, now())
    if facts.found.blank and home.data_dir.is_dir():
        _remove_blank(home.data_dir)
    if plan.deed is Deed.RESTORE:
        assert store is not None  # noqa: S101  a restore is planned from what it holds
        return _restore(home, facts, store, now)
    if plan.remove is not None:
        assert home.control is not None  # noqa: S101  the plan is made from its answer
        home.control.remove(plan.remove)
        _log.info("member %s (%x) was removed from the cluster", plan.remove.name, plan.remove.id)
    # A crash here leaves a member that the cluster does not list: the next start takes its data aside.
    quarantined = None
    if plan.aside:
        with place.locked(home.data_dir):
            quarantined = place.set_aside(home.data_dir, now())
        _log.info("the old data is in %s", quarantined)
    # A crash here leaves no data, and a cluster that does not list us: the next start joins.
    if plan.add:
        assert home.control is not None  # noqa: S101  as above
        added = home.control.add_learner(facts.peer_urls)
        _log.info("the cluster takes us as member %x, which does not vote yet", added.id)
    return quarantined, None


def _remove_blank(data_dir: Path) -> None:
    """Delete what an etcd made that never was a member: as old data it would push out some that is worth it.

    Raises TargetError where it is one by now: asking the cluster and the store took its time.
    """
    with place.locked(data_dir):
        now = validate(data_dir, Mode.FULL)
        if not now.blank:
            raise TargetError(f"this was written to meanwhile: {now.finding}", hint="start again")
        place.remove_blank(data_dir)


def _move(home: Home, own: Member) -> None:
    """Have the others look for this member where it will listen, while they have a quorum.

    Raises EtcdUnavailableError where that has just gone: they are asked again, or are found silent.  A crash
    behind it leaves them looking for a member that is not up, where it comes up next.
    """
    assert home.control is not None  # noqa: S101  the plan is made from its answer
    urls = home.own_peer_urls
    try:
        if home.control.update_peer_urls(own, urls, tries=LIST_TRIES):
            _log.info("member %x, known by %s, is reached at %s", own.id, _words(own.peer_urls), _words(urls))
    except EtcdUnavailableError:
        raise
    except EtcdError as error:  # no start waits for rights that it may never get
        _log.warning("the cluster does not move member %x to %s: %s", own.id, _words(urls), error.message)


def _words(urls: Iterable[str]) -> str:
    return ", ".join(urls)


def _restore(
    home: Home, facts: Facts, store: Store, now: Callable[[], datetime]
) -> tuple[Path | None, Restored]:
    wish = Wish(
        target=Latest(),
        token=home.token,
        members=(",".join(f"{home.name}={url}" for url in facts.peer_urls),),
        quota=home.quota,
        announce=True,
    )
    plan = plan_restore(read_catalogue(store), store.url, wish)
    _log.info("restores %s and %d deltas from %s", plan.full.key, len(plan.deltas), store.url)
    quarantined = None
    restored = restore(plan, store, {home.name: home.data_dir}, replace=True, now=now)
    if restored is None:
        # What came of this very restore is there, and has gone bad since: it is not to be taken for done.
        with place.locked(home.data_dir):
            quarantined = place.set_aside(home.data_dir, now())
        restored = restore(plan, store, {home.name: home.data_dir}, replace=True, now=now)
    assert restored is not None  # noqa: S101  nothing is there any more that it could be
    kept = [Path(each) for each in restored.quarantined]
    seconds = sum(restored.seconds.values())
    _log.info("restored and proven up to revision %d, %.1f s of work", restored.revision, seconds)
    for each in kept:
        _log.info("the old data is in %s", each)
    return (kept[-1] if kept else quarantined), restored


def _refuse_a_third(data_dir: Path, now: datetime) -> None:
    """Raise TargetError where taking data aside would push out what was kept within a day."""
    kept = place.quarantines(data_dir)
    if len(kept) >= place.QUARANTINES_KEPT and kept[0][0] > now - _SPARED:
        raise TargetError(
            f"data was taken to quarantine {len(kept)} times within a day: {kept[0][1]} would be lost",
            hint="find out what damages it; move the quarantines elsewhere to go on",
        )
