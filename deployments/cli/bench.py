"""``freehold bench``: measure a running service; prints a table, writes JSON, asserts nothing.

By default the service is the demo that ``make serve`` keeps running in the same folder.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from deployments.bench import report
from deployments.bench.chatbot import ChatbotPlan, run_chatbot
from deployments.bench.client import Service
from deployments.bench.first_token import StreamClient
from deployments.bench.gateway import GatewayPlan, run_gateway
from deployments.bench.progress import BarProgress
from deployments.bench.rounds import RoundsPlan, run_rounds
from deployments.bench.target import from_demo, from_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from deployments.bench.progress import Progress
    from deployments.bench.target import Target

app = typer.Typer(help="Measure a running service.", no_args_is_help=True)

_Plan = TypeVar("_Plan")
_Result = TypeVar("_Result")

DEMO_FILE = Path(".freehold/demo.json")
API_KEY_ENV = "FREEHOLD_API_KEY"
CHATBOT, ROUNDS, GATEWAY = ChatbotPlan(), RoundsPlan(), GatewayPlan()

BaseUrl = Annotated[
    str | None, typer.Option(help="A service to measure; by default the running demo.")
]
ApiKeyEnv = Annotated[str, typer.Option(help="With --base-url: the variable with the API key.")]
Model = Annotated[str | None, typer.Option(help="With --base-url: by default the first listed.")]
DemoFile = Annotated[Path, typer.Option(help="What a running demo writes when it is ready.")]
JsonFile = Annotated[
    Path | None, typer.Option("--json", help="Write the figures here.", dir_okay=False)
]
Count = Annotated[int, typer.Option(min=1)]


@app.command()
def chatbot(
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = API_KEY_ENV,
    model: Model = None,
    demo_file: DemoFile = DEMO_FILE,
    json_file: JsonFile = None,
    system_tokens: Count = CHATBOT.system_tokens,
    question_tokens: Count = CHATBOT.question_tokens,
    output_tokens: Count = CHATBOT.output_tokens,
    concurrency: Count = CHATBOT.concurrency,
    requests: Annotated[int, typer.Option(min=1, help="Per mode and round.")] = CHATBOT.requests,
    rounds: Count = CHATBOT.rounds,
) -> None:
    """Many users share one long system prompt: throughput and latency with and without reuse."""
    plan = ChatbotPlan(system_tokens, question_tokens, output_tokens, concurrency, requests, rounds)
    target = _target(base_url, api_key_env, model, demo_file)
    served, result = _measure(target, run_chatbot, plan, connections=concurrency)
    Console().print(report.chatbot_table(result))
    if json_file:
        report.write_json(json_file, "chatbot", served, plan, result)


@app.command()
def rounds(
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = API_KEY_ENV,
    model: Model = None,
    demo_file: DemoFile = DEMO_FILE,
    json_file: JsonFile = None,
    rounds: Annotated[int, typer.Option(min=1, help="Per session.")] = ROUNDS.rounds,
    start_tokens: Count = ROUNDS.start_tokens,
    growth_tokens: Annotated[
        int, typer.Option(min=1, help="Per round, the answer included.")
    ] = ROUNDS.growth_tokens,
    output_tokens: Count = ROUNDS.output_tokens,
    sessions: Count = ROUNDS.sessions,
) -> None:
    """One growing session: how many prompt tokens are computed with and without reuse."""
    if growth_tokens < output_tokens:
        message = "a round grows by its answer at least: give --growth-tokens >= --output-tokens"
        raise typer.BadParameter(message)
    plan = RoundsPlan(rounds, start_tokens, growth_tokens, output_tokens, sessions)
    target = _target(base_url, api_key_env, model, demo_file)
    served, result = _measure(target, run_rounds, plan, connections=1)
    Console().print(report.rounds_table(result))
    if json_file:
        report.write_json(json_file, "rounds", served, plan, result)


@app.command()
def gateway(
    base_url: BaseUrl = None,
    api_key_env: ApiKeyEnv = API_KEY_ENV,
    model: Model = None,
    demo_file: DemoFile = DEMO_FILE,
    json_file: JsonFile = None,
    prompt_tokens: Count = GATEWAY.prompt_tokens,
    output_tokens: Count = GATEWAY.output_tokens,
    requests: Count = GATEWAY.requests,
    warmup: Count = GATEWAY.warmup,
) -> None:
    """One client: what the way to the engine adds to the time to first token, by stage."""
    plan = GatewayPlan(prompt_tokens, output_tokens, requests, warmup)
    target = _target(base_url, api_key_env, model, demo_file)
    with closing(StreamClient(target, time.perf_counter)) as streams:
        run = partial(run_gateway, streams=streams)
        served, result = _measure(target, run, plan, connections=1)
    Console().print(report.gateway_table(result))
    if json_file:
        report.write_json(json_file, "gateway", served, plan, result)


def _target(base_url: str | None, api_key_env: str, model: str | None, demo_file: Path) -> Target:
    if base_url is None:
        return from_demo(demo_file)
    return from_options(base_url, api_key_env, model, os.environ)


def _measure(
    target: Target,
    run: Callable[[Service, _Plan, random.Random, Progress], Awaitable[_Result]],
    plan: _Plan,
    *,
    connections: int,
) -> tuple[str, _Result]:
    """Run a benchmark with its progress shown on stderr; returns the model's name and figures."""

    async def measure(progress: Progress) -> tuple[str, _Result]:
        async with await Service.open(
            target, connections=connections, clock=time.perf_counter
        ) as service:
            # Not seeded: a second run must not find the first one's prompts cached.
            return service.model, await run(service, plan, random.SystemRandom(), progress)

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Bar(*columns, TimeElapsedColumn(), console=Console(stderr=True)) as bar:
        return asyncio.run(measure(BarProgress(bar)))
