"""Made-up text of a wanted length in tokens, for a model whose tokenizer only the service has.

A support handbook (the system prompt) and customers' questions. The same random generator makes
the same text; different ones differ from the first words on, so that no run finds another's cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from freehold.protocol import CacheMode

if TYPE_CHECKING:
    import random

    from deployments.bench.client import Service

_TOPICS = (
    "a late delivery",
    "a damaged parcel",
    "a double charge",
    "a lost password",
    "an expired voucher",
    "a wrong size",
    "a missing invoice",
    "a cancelled subscription",
)
_ACTIONS = (
    "apologise once and offer a replacement",
    "ask for the order number before anything else",
    "refund the amount to the original card",
    "open a ticket and name its number",
    "explain the two options in plain words",
    "hand over to a colleague of the second line",
)
_LIMITS = (
    "unless the order is older than sixty days",
    "but never promise a date",
    "and keep the answer under four sentences",
    "even when the customer is upset",
    "and write down what was agreed",
)
_WISHES = (
    "I would like to know what happens next",
    "please tell me which papers I need",
    "my neighbour got a different answer last week",
    "I have already waited for eleven days",
    "the shop in my street could not help me",
)


def handbook(rng: random.Random, num_characters: int) -> str:
    """Numbered rules, at least ``num_characters`` long, cut at the end of a rule."""
    parts = [f"Handbook {rng.getrandbits(48):012x} of the support desk."]
    length = len(parts[0])
    while length < num_characters:
        topic, action, limit = (rng.choice(words) for words in (_TOPICS, _ACTIONS, _LIMITS))
        parts.append(f"Rule {len(parts)}: when a customer writes about {topic}, {action}, {limit}.")
        length += len(parts[-1]) + 1
    return " ".join(parts)


def question(rng: random.Random, num_characters: int) -> str:
    """One customer's question, whole phrases, at least ``num_characters`` long."""
    parts = [f"Order {rng.randrange(10**6):06d} is about {rng.choice(_TOPICS)}"]
    length = len(parts[0])
    while length < num_characters:
        parts.append(rng.choice(_WISHES))
        length += len(parts[-1]) + 2
    return ", ".join(parts) + "?"


@dataclass(frozen=True, slots=True)
class Ruler:
    """Converts tokens to characters for text of this module, as measured on the service."""

    tokens_per_character: float
    template_tokens: int
    """What the chat template adds to a conversation of one message."""

    @classmethod
    async def measure(cls, service: Service, rng: random.Random) -> Ruler:
        """Two one-token requests, short and long; the difference is free of the template."""
        text = handbook(rng, 600)
        short, long = text[:150], text
        counts = [
            (
                await service.chat(
                    [{"role": "user", "content": sample}], max_tokens=1, cache=CacheMode.OFF
                )
            ).prompt_tokens
            for sample in (short, long)
        ]
        rate = (counts[1] - counts[0]) / (len(long) - len(short))
        return cls(rate, max(0, counts[0] - round(len(short) * rate)))

    def characters(self, num_tokens: int) -> int:
        return max(0, int(num_tokens / self.tokens_per_character))
