"""How a benchmark's results are seen: a table for people, JSON for programs.

Decides presentation only; figures come from the results, whose fields are the JSON's keys.
"""

from __future__ import annotations

import json
import os
import platform
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from typing import TYPE_CHECKING

from rich.table import Table

if TYPE_CHECKING:
    from pathlib import Path

    from deployments.bench.chatbot import ChatbotPlan, ChatbotResult
    from deployments.bench.gateway import GatewayPlan, GatewayResult
    from deployments.bench.rounds import RoundsPlan, RoundsResult


def chatbot_table(result: ChatbotResult) -> Table:
    on, off = result.reuse, result.no_reuse
    table = Table("", "reuse", "no reuse", "", title="chatbot")
    ratio = f"{result.throughput_ratio:.1f} x"
    table.add_row("requests/s", f"{on.requests_per_s:.2f}", f"{off.requests_per_s:.2f}", ratio)
    table.add_row(
        "output tokens/s", f"{on.output_tokens_per_s:.0f}", f"{off.output_tokens_per_s:.0f}", ratio
    )
    p50, p99 = f"-{result.p50_reduction:.0%}", f"-{result.p99_reduction:.0%}"
    table.add_row("latency p50, s", f"{on.latency.p50_s:.2f}", f"{off.latency.p50_s:.2f}", p50)
    table.add_row("latency p99, s", f"{on.latency.p99_s:.2f}", f"{off.latency.p99_s:.2f}", p99)
    table.add_row(
        "prompt tokens from cache",
        f"{on.cached_tokens} of {on.prompt_tokens}",
        f"{off.cached_tokens} of {off.prompt_tokens}",
        f"{result.hit_rate:.1%}",
    )
    return table


def rounds_table(result: RoundsResult) -> Table:
    title = f"rounds: a session is {result.speedup:.1f} x faster with reuse"
    table = Table("round", "computed", "s", "computed, no reuse", "s, no reuse", title=title)
    last_with, last_without = result.sessions_with[-1], result.sessions_without[-1]
    per_round = zip(
        last_with.computed_tokens,
        last_with.latency_s,
        last_without.computed_tokens,
        last_without.latency_s,
        strict=True,
    )
    for number, (computed, seconds, computed_off, seconds_off) in enumerate(per_round, 1):
        table.add_row(
            str(number), str(computed), f"{seconds:.3f}", str(computed_off), f"{seconds_off:.3f}"
        )
    table.add_section()
    table.add_row(
        "session",
        f"{result.prefill_tokens_with:.0f}",
        f"{result.elapsed_s_with:.2f}",
        f"{result.prefill_tokens_without:.0f}",
        f"{result.elapsed_s_without:.2f}",
    )
    return table


def gateway_table(result: GatewayResult) -> Table:
    table = Table("stage", "p50, ms", title="gateway, to the first token")
    for name, ms in result.stages.items():
        table.add_row(name, f"{ms:.3f}")
    table.add_section()
    table.add_row("all but the engine", f"{result.overhead_p50_ms:.3f}")
    table.add_row("engine, queued to first delta", f"{result.engine_p50_ms:.3f}")
    table.add_row("client's time to first token", f"{result.ttft_p50_ms:.3f}")
    return table


def write_json(
    path: Path,
    name: str,
    model: str,
    plan: ChatbotPlan | RoundsPlan | GatewayPlan,
    result: ChatbotResult | RoundsResult | GatewayResult,
) -> None:
    """The result's fields on top, then what it was measured with."""
    report = {
        "benchmark": name,
        **asdict(result),
        "plan": asdict(plan),
        "model": model,
        "freehold": version("freehold"),
        "machine": f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs",
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=2) + "\n")
