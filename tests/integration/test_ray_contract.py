"""The behaviours of Ray Serve 2.60 that routing is built on, in both of its modes.

``serve_probe`` meets them once a mode in a process of its own; each test here reads one fact.
"""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.service

ROOT = Path(__file__).parents[2]
DEADLINE_S = 240
"""Of one probe process: reached only if something hangs."""

PROBES = (
    "reports_reach_the_replica_that_was_asked",
    "requests_follow_their_prefix",
    "other_tenants_keys_meet_nothing",
    "errors_keep_their_fields",
    "a_full_engine_is_passed_over",
    "a_route_follows_serve_to_another_replica",
    "closing_reaches_the_engine",
    "a_frozen_replica_ends_its_streams",
    "a_killed_replica_ends_its_stream",  # the last two cost a restart each
    "a_fleet_killed_whole_refuses_and_recovers",
)

Facts: TypeAlias = "Mapping[str, Mapping[str, Any]]"


@pytest.fixture(scope="module", params=["throughput", "default"])
def facts(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    """What the probes saw, by name; one process a mode."""
    token = tmp_path_factory.mktemp("ray") / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32))
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(token),
        "RAY_SERVE_THROUGHPUT_OPTIMIZED": str(int(request.param == "throughput")),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    process = subprocess.Popen(  # noqa: S603  # our own interpreter and script
        [sys.executable, "-m", "tests.integration.serve_probe", *PROBES],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
    assert process.returncode == 0, f"{out}\n{err[-4000:]}"
    lines = (json.loads(line) for line in out.splitlines() if line.startswith('{"probe"'))
    return {line["probe"]: line["saw"] for line in lines}


def test_a_pinned_call_reaches_that_replica(facts: Facts) -> None:
    saw = facts["reports_reach_the_replica_that_was_asked"]
    assert saw == {
        "ready": True,
        "cards": ["fake"],
        "num_replicas": 2,
        "incarnations_differ": True,
        "each_answered_for_itself": True,
    }


def test_calls_of_one_request_run_at_once_and_each_follows_its_own_ranking(facts: Facts) -> None:
    saw = facts["requests_follow_their_prefix"]
    assert saw["followed"]
    assert saw["num_in_flight"] == 0


def test_serve_does_not_probe_queues_on_the_way(facts: Facts) -> None:
    assert facts["requests_follow_their_prefix"]["probes_for_20_requests"] == 0


def test_the_index_is_isolated_by_keys(facts: Facts) -> None:
    saw = facts["other_tenants_keys_meet_nothing"]
    assert saw == {"same": 160, "other": 0, "cached": 0}


def test_an_engines_errors_arrive_with_their_fields(facts: Facts) -> None:
    saw = facts["errors_keep_their_fields"]
    assert saw["refuse"] == ["InvalidRequest", "prompt", "is not to the engine's taste"]


def test_an_unexpected_errors_text_stays_in_the_replica(facts: Facts) -> None:
    saw = facts["errors_keep_their_fields"]
    assert saw["bug"] == ["EngineDead", "unexpected ZeroDivisionError in the replica"]


def test_a_full_engine_is_passed_over_and_said_when_all_are(facts: Facts) -> None:
    saw = facts["a_full_engine_is_passed_over"]
    assert saw["passed_on"]
    assert saw["nobody"] == ["CapacityExceeded", "the waiting queue", "2.5"]
    assert saw["num_in_flight"] == 0


def test_the_route_is_where_serve_really_sent_the_request(facts: Facts) -> None:
    saw = facts["a_route_follows_serve_to_another_replica"]
    assert saw == {"routes_are_true": True, "all_but_the_last_at_home": True, "moved": 1}


def test_closing_and_cancelling_reach_the_engines_generator(facts: Facts) -> None:
    saw = facts["closing_reaches_the_engine"]
    assert saw == {"opening_was_cancelled": True, "num_in_flight": 0}


def test_a_frozen_replica_hangs_nobody(facts: Facts) -> None:
    saw = facts["a_frozen_replica_ends_its_streams"]
    assert saw == {"ended": "ReplicaLost", "num_in_flight": 0}


def test_a_killed_replica_is_out_of_the_index_before_the_next_decision(facts: Facts) -> None:
    saw = facts["a_killed_replica_ends_its_stream"]
    assert saw == {
        "ended": "ReplicaLost",
        "index_knew_it": True,
        "index_dropped_it": True,
        "next_went_elsewhere": True,
        "replaced": True,
        "num_in_flight": 0,
    }


def test_a_request_that_finds_all_replicas_dead_is_refused_and_a_later_one_served(
    facts: Facts,
) -> None:
    saw = facts["a_fleet_killed_whole_refuses_and_recovers"]
    assert saw == {
        "num_killed": 2,
        "refusal": "ReplicaLost",
        "recovered": True,
        "num_in_flight": 0,
    }
