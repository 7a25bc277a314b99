"""What `GET /status` says, and what came of a capture that was asked for.

Plain members for JSON.  They are an interface: more may come, none may change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rootcellar.backup.catalogue.records import Check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rootcellar.agent.view import View
    from rootcellar.backup.capture.outcome import Capture, Captured


def report(agent: View) -> dict[str, Any]:
    """Everything about an agent.  Moments in RFC 3339, durations in seconds."""
    journal, state, now = agent.journal, agent.board.state, agent.clock.now()
    point, status, proof = journal.point, journal.status, journal.proof
    return {
        "state": {"phase": state.phase, "reason": state.reason, "since": state.since},
        "faults": dict(agent.board.facts.faults),
        "leads": agent.leads,
        "writer": agent.settings.writer,
        "needsRestart": list(agent.needs_restart),
        "beganAt": agent.began_at,
        "store": agent.store_url,
        "epoch": journal.epoch or None,
        "timeline": journal.timeline or None,
        "session": None
        if not journal.epoch
        else {"continues": journal.why_anew is None, "reason": journal.why_anew},
        "etcd": {
            "endpoints": agent.settings.endpoints,
            "clusterId": f"{status.header.cluster_id:x}" if status is not None else None,
            "memberId": f"{status.header.member_id:x}" if status is not None else None,
            "version": str(status.version) if status is not None else None,
            "members": journal.cluster_size or None,
        },
        "recovery": {
            "first": journal.first,
            "last": point.revision if point is not None else None,
            "at": point.at if point is not None else None,
            "age": round((now - point.at).total_seconds(), 3) if point is not None else None,
        },
        "lastProof": None
        if proof is None
        else {"check": proof.check, "revision": proof.revision, "at": proof.at},
        "proofs": [
            {
                "check": check,
                "at": seen.at if (seen := journal.proofs.get(check)) is not None else None,
                "revision": seen.revision if seen is not None else None,
                "failing": journal.failing.get(check),
            }
            for check in Check
            if check in journal.proofs or check in journal.failing
        ],
        "uploads": {
            "proven": journal.uploads["passed"],
            "unproven": journal.uploads["unfiled"],
            "damaged": journal.damage.detail if journal.damage is not None else None,
        },
        "stores": list(stores(agent)),
        "expectedIntervals": agent.expected_intervals(),
        "schedules": [
            {
                "name": diary.name,
                "suspended": diary.is_suspended,
                "running": diary.is_running,
                "nextAt": diary.next_at,
                "endedAt": diary.ended_at,
                "outcome": diary.outcome,
                "error": diary.error,
            }
            for diary in agent.diaries
        ],
        "steps": [
            {"name": step.name, "seconds": round(agent.clock.monotonic() - step.began, 3)}
            for step in agent.board.steps
        ],
    }


def stores(agent: View) -> Iterator[dict[str, Any]]:
    """Each store: `role` is first, mirror or standby.  `behind` is how far it lags the first, in revisions,
    `lag` in seconds; None where that is not known.
    """
    point = agent.journal.point
    if agent.store_url is None:
        return
    yield {
        "name": None,
        "role": "first",
        "url": agent.store_url,
        "revision": point.revision if point is not None else None,
        "at": point.at if point is not None else None,
        "behind": 0 if point is not None else None,
        "lag": 0.0 if point is not None else None,
        "failed": 0,
        "active": agent.is_writing,
    }
    for each in agent.reached.values():
        lag, held = each.lag(agent.journal), each.held(agent.journal)
        yield {
            "name": each.name,
            "role": "mirror",
            "url": each.url,
            "revision": held.revision if held is not None else None,
            "at": held.at if held is not None else None,
            "behind": lag.revisions if lag is not None else None,
            "lag": lag.seconds if lag is not None else None,
            "failed": each.failed,
            "active": agent.is_writing,
        }
    if agent.standby is not None:
        own = agent.standby.journal.point
        yield {
            "name": agent.standby.name,
            "role": "standby",
            "url": agent.standby.url,
            "revision": own.revision if own is not None else None,
            "at": own.at if own is not None else None,
            "behind": None,
            "lag": None,
            "failed": 0,
            "active": agent.standby.is_active,
        }


def told_capture(agent: View, done: Capture) -> dict[str, Any]:
    """What a capture came to, as `rootcellar snapshot --output json` has it."""
    last = [each.record.last_revision for each in (*done.deltas, *((done.full,) if done.full else ()))]
    point = agent.journal.point
    return {
        "store": agent.store_url,
        "revision": max([*last, point.revision if point is not None else 0]),
        "full": _object(done.full) if done.full is not None else None,
        "deltas": [_object(each) for each in done.deltas],
        "whyFull": done.why_full.reason if done.why_full is not None else None,
        "timeline": None,
        "abandoned": [],
        "locked": [],
    }


def _object(captured: Captured) -> dict[str, Any]:
    record = captured.record
    return {
        "key": record.key,
        "start": record.start,
        "last": record.last_revision,
        "size": record.payload_size,
        "storedSize": record.stored_size,
        "hashKv": record.hashkv.hash if record.hashkv is not None else None,
        "seconds": round(captured.seconds, 3),
        "notices": [notice.message for notice in record.warnings],
    }
