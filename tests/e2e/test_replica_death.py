"""kill -9 of an engine under traffic: its stream says so, everything else goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from openai import APIError, OpenAI

from tests.support.service import RunningService, running_service
from tests.support.tiny_models import make_tiny_model

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from pathlib import Path

    from openai.types import Completion

pytestmark = pytest.mark.service


@pytest.fixture
def service(tmp_path: Path) -> Generator[RunningService]:
    """Of its own: the death of a replica is no good neighbour to other tests."""
    model = make_tiny_model(tmp_path / "model", max_model_len=4096)
    with running_service(tmp_path, model, name="tiny", replicas=2, kv_blocks=1024) as running:
        yield running


def test_a_killed_replica_costs_its_own_streams_and_nothing_else(
    service: RunningService, new_text: str
) -> None:
    victim, _ = service.engine_processes()
    prompts = [f"{side} {new_text}" for side in ("left", "right")]
    with OpenAI(
        base_url=service.base_url, api_key=service.tenants[0].api_key, max_retries=0
    ) as client:

        def start(prompt: str) -> Iterator[Completion]:
            """A long answer, of which one chunk has come."""
            stream = client.completions.create(
                model=service.model,
                prompt=prompt,
                max_tokens=3000,
                stream=True,
                extra_body={"ignore_eos": True},
            )
            next(stream)
            return stream

        # Two cold prompts at once go to a replica each.
        streams = [start(prompt) for prompt in prompts]
        victim.kill()
        ends = [_end(stream) for stream in streams]
        assert sorted(end is None for end in ends) == [False, True]

        for prompt in prompts:
            answer = client.completions.create(model=service.model, prompt=prompt, max_tokens=4)
            assert answer.choices[0].finish_reason == "length"

    service.wait_idle()  # which is with two replicas again
    assert victim.pid not in {process.pid for process in service.engine_processes()}


def _end(stream: Iterator[Completion]) -> APIError | None:
    """What a stream ends with: None for its proper end."""
    try:
        for _ in stream:
            pass
    except APIError as error:
        return error
    return None
