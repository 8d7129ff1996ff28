"""Engines over the fake executor, and requests for them, with keys as a gateway makes them."""

# pyright: reportUnknownMemberType=false
# tokenizers declares its lists of tokens without an element type.

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from freehold.engine.config import EngineConfig
from freehold.engine.core import EngineCore
from freehold.engine.vocabulary import Vocabulary
from freehold.kv.keys import Domain, ModelIdentity, block_keys
from freehold.protocol import (
    AccountId,
    CacheMode,
    EpochId,
    GenerateRequest,
    ModelCard,
    Owner,
    RequestId,
    SamplingParams,
)
from freehold.secret import Secret
from tests.support.fake_executor import FakeExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from freehold.engine.batch import Executor
    from freehold.engine.outputs import Ended, StepOutput
    from freehold.engine.vocabulary import Tokenizer as TokenizerPort
    from freehold.protocol import AccountPolicy, Delta

MODEL = "fake"
FINGERPRINT = "fingerprint"
PAD, BOS, EOS = 0, 1, 2
NUM_SPECIALS = 3
VOCAB_SIZE = NUM_SPECIALS + 256
_request_numbers = itertools.count()


class FakeClock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class ByteTokenizer:
    """Every byte is a token, behind three special ones; the part of Hugging Face's the core uses."""

    def __init__(self) -> None:
        specials = ["<pad>", "<bos>", "<eos>"]
        # The alphabet in order of the bytes that its characters stand for.
        alphabet = [byte_char(byte) for byte in range(256)]
        vocab = {token: i for i, token in enumerate([*specials, *alphabet])}
        self.backend_tokenizer = Tokenizer(BPE(vocab=vocab, merges=[]))
        self.backend_tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        self.backend_tokenizer.decoder = decoders.ByteLevel()
        self.backend_tokenizer.add_special_tokens(specials)

    @property
    def all_special_ids(self) -> list[int]:
        return [PAD, BOS, EOS]


def byte_char(byte: int) -> str:
    """How byte-level BPE spells a byte: itself where it is visible, else behind U+0100."""
    hidden = [*range(0x21), *range(0x7F, 0xA1), 0xAD]
    return chr(0x100 + hidden.index(byte)) if byte in hidden else chr(byte)


def ids_of(text: str) -> tuple[int, ...]:
    return tuple(NUM_SPECIALS + byte for byte in text.encode())


def make_config(**changes: Any) -> EngineConfig:
    defaults: dict[str, Any] = {
        "num_blocks": 64,
        "block_size": 4,
        "max_num_seqs": 8,
        "max_step_tokens": 64,
        "min_chunk_tokens": 8,
        "max_waiting": 64,
    }
    return EngineConfig(**(defaults | changes))


def make_card(config: EngineConfig, *, max_model_len: int = 200) -> ModelCard:
    return ModelCard(
        model=MODEL,
        fingerprint=FINGERPRINT,
        architecture="FakeForCausalLM",
        dtype="float32",
        block_size=config.block_size,
        num_blocks=config.num_blocks,
        max_model_len=max_model_len,
        vocab_size=VOCAB_SIZE,
        eos_token_ids=(EOS,),
        attention_backend="fake",
    )


def make_request(
    token_ids: Sequence[int],
    *,
    request_id: str | None = None,
    tenant: str = "a",
    block_size: int = 4,
    cache: CacheMode = CacheMode.ON,
    deadline_s: float | None = None,
    policies: Mapping[AccountId, AccountPolicy] | None = None,
    model: str = MODEL,
    fingerprint: str = FINGERPRINT,
    **sampling: Any,
) -> GenerateRequest:
    """A request of ``tenant``; greedy and 8 tokens unless ``sampling`` says otherwise."""
    params: dict[str, Any] = {"temperature": 0.0, "max_tokens": 8} | sampling
    owner = Owner(AccountId(f"tn_{tenant}"), EpochId(f"epoch-{tenant}"))
    domain = Domain(owner, Secret(f"salt of {tenant}".encode()))
    chain = block_keys(
        token_ids, block_size=block_size, model=ModelIdentity(fingerprint), tail=domain
    )
    number = next(_request_numbers)
    return GenerateRequest(
        request_id=RequestId(request_id or f"request-{number}"),
        model=model,
        fingerprint=fingerprint,
        token_ids=tuple(token_ids),
        block_keys=chain.block_keys,
        next_parent=chain.next_parent,
        regions=chain.regions,
        tail=chain.tail,
        policies=policies or {},
        sampling=SamplingParams(**params),
        cache=cache,
        deadline_s=deadline_s,
    )


@dataclass(slots=True)
class Answer:
    """Everything that one request was told."""

    deltas: list[Delta] = field(default_factory=list["Delta"])
    ended: Ended | None = None

    def token_ids(self, index: int = 0) -> list[int]:
        return [t for delta in self.of(index) for t in delta.token_ids]

    def text(self, index: int = 0) -> str:
        return "".join(delta.text for delta in self.of(index))

    def of(self, index: int) -> list[Delta]:
        return [delta for delta in self.deltas if delta.index == index]


class Harness:
    """Steps a core and remembers every answer."""

    def __init__(
        self, executor: Executor, tokenizer: TokenizerPort, config: EngineConfig, card: ModelCard
    ) -> None:
        self.config = config
        self.clock = FakeClock()
        self.core = EngineCore(
            executor, Vocabulary(tokenizer), config, card, clock=self.clock, entropy=lambda: 7
        )
        self.answers: dict[RequestId, Answer] = {}

    def add(self, request: GenerateRequest) -> Answer:
        self.core.add(request, self.clock())
        self.answers[request.request_id] = Answer()
        return self.answers[request.request_id]

    def step(self) -> StepOutput:
        output = self.core.step()
        self.record(output)
        assert self.core.kv.check()
        return output

    def record(self, output: StepOutput) -> None:
        for request_id, delta in output.deltas:
            self.answers[request_id].deltas.append(delta)
        for ended in output.ended:
            assert self.answers[ended.request_id].ended is None, "a request ends once"
            self.answers[ended.request_id].ended = ended

    def abort(self, request_id: RequestId) -> None:
        self.record(self.core.abort(request_id))

    def run(self, max_steps: int = 10_000) -> None:
        """Step until nothing is left to do."""
        for _ in range(max_steps):
            if not self.core.has_work:
                return
            self.step()
        message = f"still busy after {max_steps} steps"
        raise AssertionError(message)

    def answer(self, request: GenerateRequest) -> Answer:
        """Run one request alone."""
        answer = self.add(request)
        self.run()
        return answer


class CoreHarness(Harness):
    """Over the fake executor."""

    def __init__(
        self,
        config: EngineConfig | None = None,
        *,
        max_model_len: int = 200,
        fails: Callable[[int], bool] = lambda _: False,
    ) -> None:
        config = config or make_config()
        self.executor = FakeExecutor(config.num_blocks, config.block_size, VOCAB_SIZE, fails)
        card = make_card(config, max_model_len=max_model_len)
        super().__init__(self.executor, ByteTokenizer(), config, card)
