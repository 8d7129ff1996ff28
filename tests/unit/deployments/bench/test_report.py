from __future__ import annotations

import json
from io import StringIO
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from deployments.bench import report
from deployments.bench.chatbot import ChatbotPlan, ChatbotResult, ModeFigures
from deployments.bench.client import Reply
from deployments.bench.first_token import FirstToken
from deployments.bench.gateway import GatewayResult
from deployments.bench.rounds import RoundsResult, SessionFigures

if TYPE_CHECKING:
    from pathlib import Path

    from rich.table import Table


def reply(latency_s: float, *, cached: int) -> Reply:
    return Reply(latency_s, prompt_tokens=2000, cached_tokens=cached, output_tokens=16)


CHATBOT = ChatbotResult.of(
    ModeFigures.of([reply(1.0, cached=1984), reply(2.0, cached=1984)], elapsed_s=2.0),
    ModeFigures.of([reply(10.0, cached=0), reply(20.0, cached=0)], elapsed_s=20.0),
)


def shown(table: Table) -> str:
    out = StringIO()
    Console(file=out, width=120).print(table)
    return out.getvalue()


def test_the_chatbots_table_says_both_modes_and_what_was_gained() -> None:
    text = shown(report.chatbot_table(CHATBOT))

    for figure in ("1.00", "0.10", "10.0 x", "-90%", "3968 of 4000", "99.2%"):
        assert figure in text


def test_the_rounds_table_has_a_line_a_round() -> None:
    with_reuse = SessionFigures.of([reply(1.0, cached=0), reply(0.5, cached=1984)])
    without = SessionFigures.of([reply(2.0, cached=0), reply(4.0, cached=0)])

    text = shown(report.rounds_table(RoundsResult.of([with_reuse], [without])))

    for figure in ("0.500", "4.000", "4.0 x faster", "2016", "4000"):
        assert figure in text


def test_the_gateways_table_adds_up_to_the_clients_time() -> None:
    samples = [FirstToken(0.012, {"hash": 0.001, "engine": 0.008})]

    text = shown(report.gateway_table(GatewayResult.of(samples)))

    for figure in ("1.000", "3.000", "4.000", "8.000", "12.000"):
        assert figure in text


def test_the_json_has_the_headline_on_top_and_how_it_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "chatbot.json"

    report.write_json(path, "chatbot", "smollm2", ChatbotPlan(), CHATBOT)

    figures = json.loads(path.read_text())
    assert figures["throughput_ratio"] == pytest.approx(10)
    assert figures["p99_reduction"] == pytest.approx(0.9)
    assert figures["hit_rate"] == pytest.approx(0.992)
    assert figures["reuse"]["latency"]["count"] == 2
    assert figures["plan"]["concurrency"] == 32
    assert figures["model"] == "smollm2"
