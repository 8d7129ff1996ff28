"""One choice between sampler and stream: takes tokens, gives text, knows when it is over.

Brings together a sequence, its sampling state, its detokenizer and its stop strings. Knows no
scheduler: a finished sequence is the core's to remove.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freehold.engine.detokenizer import Detokenizer
from freehold.engine.logprobs import spelled
from freehold.engine.penalties import SamplingState
from freehold.engine.stops import Stop, StopStrings, stop_by_token, stop_token_ids
from freehold.protocol import FinishReason, PositionLogprobs

if TYPE_CHECKING:
    import random
    from collections.abc import Set as AbstractSet

    from freehold.engine.sampler import Sampled
    from freehold.engine.sequence import Sequence
    from freehold.engine.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Gain:
    """What one token added to a choice."""

    token_ids: tuple[int, ...]
    text: str
    logprobs: tuple[PositionLogprobs, ...] = ()


class Choice:
    """Wraps a sequence for as long as it lives."""

    def __init__(
        self,
        sequence: Sequence,
        vocabulary: Vocabulary,
        eos_token_ids: AbstractSet[int],
        max_model_len: int,
        rng: random.Random,
    ) -> None:
        request = sequence.group.request
        params = request.sampling
        self.sequence = sequence
        self.state = SamplingState(
            params=params,
            prompt_ids=request.token_ids,
            banned_until_min=tuple(sorted(stop_token_ids(params, eos_token_ids))),
            random=rng,
        )
        self._params = params
        self._vocabulary = vocabulary
        self._eos_token_ids = eos_token_ids
        self._max_output = min(params.max_tokens, max_model_len - len(request.token_ids))
        self._stop_strings = StopStrings(params.stop, include=params.include_stop_in_output)
        self._detokenizer = Detokenizer(
            vocabulary, request.token_ids, skip_special_tokens=params.skip_special_tokens
        )

    def accept(self, sampled: Sampled) -> Gain:
        """Append a token; afterwards the sequence may be finished."""
        token_id = sampled.token_id
        self.sequence.token_ids.append(token_id)
        self.state.observe(token_id)
        stop = stop_by_token(token_id, self.state.num_output, self._params, self._eos_token_ids)
        is_hidden = stop is not None and not self._params.include_stop_in_output
        text = self._show("" if is_hidden else self._detokenizer.feed(token_id))
        if stop is None and self.state.num_output >= self._max_output:
            stop = Stop(FinishReason.LENGTH)
        if stop is not None and not self.sequence.is_finished:
            text += self.finish(stop)
        logprobs: tuple[PositionLogprobs, ...] = ()
        if sampled.logprobs is not None:
            logprobs = (spelled(token_id, sampled.logprobs, self._vocabulary),)
        return Gain((token_id,), text, logprobs)

    def finish(self, stop: Stop) -> str:
        """End the choice; returns the text that was held back. A stop string in it still counts."""
        text = self._show(self._detokenizer.flush())
        if not self.sequence.is_finished:
            text += self._stop_strings.flush()
            self._end(stop)
        return text

    def _show(self, text: str) -> str:
        """The part of new text that is decided; a stop string in it ends the choice."""
        if self.state.num_output < self._params.min_tokens:
            return text
        shown, matched = self._stop_strings.feed(text)
        if matched is not None:
            self._end(Stop(FinishReason.STOP, matched))
        return shown

    def _end(self, stop: Stop) -> None:
        self.sequence.finish_reason = stop.finish_reason
        self.sequence.stop_reason = stop.reason
