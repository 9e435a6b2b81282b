"""Exact costs of a piece of work: operators called, FLOPs, tokens run, bytes allocated. Free of noise."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode
from transformers import PreTrainedModel

os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # the profiler announces itself on stderr otherwise


@dataclass(frozen=True)
class Cost:
    """What some work took. All counts; bytes are those of the CPU allocator, whoever asked for them.

    kept_bytes: allocated minus freed, when all is over and garbage collected. peak_bytes: most alive at once.
    """

    tokens_run: int
    forward_passes: int
    flops: int
    operator_calls: int
    allocated_bytes: int
    kept_bytes: int
    peak_bytes: int


class _CallCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.calls += 1
        return func(*args, **(kwargs or {}))


def cost_of(model: PreTrainedModel, work: Callable[[], object], *, before: Callable[[], object] = lambda: None) -> Cost:
    """Run `work` several times, once under each instrument, so that none of them counts another.

    before: puts things back to where they were; called before each run, not counted.
    """
    before()
    with _Passes(model) as passes, _CallCounter() as counter:
        work()
    before()
    with FlopCounterMode(display=False) as flops:
        work()
    allocated, kept, peak = _allocations(work, before)
    return Cost(
        tokens_run=passes.tokens,
        forward_passes=passes.passes,
        flops=int(flops.get_total_flops()),
        operator_calls=counter.calls,
        allocated_bytes=allocated,
        kept_bytes=kept,
        peak_bytes=peak,
    )


def kept_bytes(work: Callable[[], object], *, before: Callable[[], object] = lambda: None) -> int:
    """Bytes that `work` allocated and did not give back; it is run twice, and the second run counts."""
    return _allocations(work, before)[1]


class _Passes:
    """Counts the model's forward passes and the tokens in them, seen at the model and not told by the cache."""

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.passes = self.tokens = 0

    def __enter__(self) -> _Passes:
        self._hook = self._model.register_forward_pre_hook(self._note, with_kwargs=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._hook.remove()

    def _note(self, _module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = args[0] if args else kwargs["input_ids"]
        self.passes += 1
        self.tokens += int(ids.shape[0] * ids.shape[1])


def _allocations(work: Callable[[], object], before: Callable[[], object]) -> tuple[int, int, int]:
    """(bytes allocated, bytes kept, peak bytes), from the allocator's own reports to the profiler."""
    before()
    work()  # what is built once (lazy tables, type caches) is not part of what the work costs
    before()
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
        gc.collect()
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    assert results is not None
    events = sorted(_memory_events(results.experimental_event_tree()))
    if not events:
        return 0, 0, 0
    sizes = [size for _, _, size in events]
    _, first_total, first_size = events[0]
    # The allocator's running total, not a sum in order of time: two events may carry the same time.
    peak = max(total for _, total, _ in events) - (first_total - first_size)
    return sum(size for size in sizes if size > 0), sum(sizes), max(peak, 0)


def _memory_events(events: Iterable[Any]) -> Iterable[tuple[int, int, int]]:
    """(time, bytes allocated in all after it, bytes of it) of every allocation and, negative, every release."""
    pending = list(events)
    while pending:
        event = pending.pop()
        if event.tag == torch._C._profiler._EventType.Allocation:
            yield event.start_time_ns, int(event.typed[1].total_allocated), int(event.typed[1].alloc_size)
        pending.extend(event.children)
