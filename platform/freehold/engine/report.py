"""The replica's absolute state, as routers and operators see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from freehold.protocol import ReplicaReport

if TYPE_CHECKING:
    from freehold.engine.scheduler import Scheduler
    from freehold.engine.stats import Counters, StepTimes
    from freehold.kv.cache import KVCache
    from freehold.protocol import Incarnation, ModelCard


def replica_report(
    incarnation: Incarnation,
    card: ModelCard,
    kv: KVCache,
    scheduler: Scheduler,
    counters: Counters,
    times: StepTimes,
) -> ReplicaReport:
    """Consistent if nothing is stepping meanwhile."""
    return ReplicaReport(
        incarnation=incarnation,
        card=card,
        free_blocks=kv.num_free,
        active_blocks=kv.num_active,
        cached_blocks=kv.num_cached,
        num_running=scheduler.num_running,
        num_waiting=scheduler.num_waiting,
        queued_prefill_tokens=scheduler.queued_prefill_tokens,
        prefill_tokens_per_s=times.prefill_tokens_per_s,
        decode_step_s=times.decode_step_s,
        prompt_tokens_total=counters.prompt_tokens,
        cached_tokens_total=counters.cached_tokens,
        computed_prefill_tokens_total=counters.computed_prefill_tokens,
        output_tokens_total=counters.output_tokens,
        num_preemptions_total=counters.num_preemptions,
        num_finished_total=counters.num_finished,
        num_aborted_total=counters.num_aborted,
        accounts=kv.usage_by_account,
        healthy=kv.check(),
    )
