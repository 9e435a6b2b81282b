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
class Calls:
    """What the model was made to do. All counts."""

    tokens_run: int
    forward_passes: int
    operators: int
    flops: int


@dataclass(frozen=True)
class Allocations:
    """Bytes of the CPU allocator, whoever asked for them.

    kept: allocated minus freed, when all is over and garbage collected. peak: most alive at once.
    """

    total: int
    kept: int
    peak: int


class _CallCounter(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        self.calls += 1
        return func(*args, **(kwargs or {}))


def calls_of(model: PreTrainedModel, work: Callable[[], object]) -> Calls:
    """Run `work` twice, because the two instruments would count each other."""
    with _Passes(model) as passes, _CallCounter() as counter:
        work()
    with FlopCounterMode(display=False) as flops:
        work()
    return Calls(passes.tokens, passes.passes, counter.calls, int(flops.get_total_flops()))


def allocations_of(work: Callable[[], object]) -> Allocations:
    """Run `work` once and read the allocator's own reports to the profiler.

    What is built once in a process (lazy tables, type caches) counts too: let `work` have been run before.
    """
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
        gc.collect()
    results = profiler.profiler.kineto_results if profiler.profiler is not None else None
    assert results is not None
    events = sorted(_memory_events(results.experimental_event_tree()))
    if not events:
        return Allocations(0, 0, 0)
    sizes = [size for _, _, size in events]
    _, first_total, first_size = events[0]
    # The allocator's running total, not a sum in order of time: two events may carry the same time.
    peak = max(total for _, total, _ in events) - (first_total - first_size)
    return Allocations(sum(size for size in sizes if size > 0), sum(sizes), max(peak, 0))


def _memory_events(events: Iterable[Any]) -> Iterable[tuple[int, int, int]]:
    """(time, bytes allocated in all after it, bytes of it) of every allocation and, negative, every release."""
    pending = list(events)
    while pending:
        event = pending.pop()
        if event.tag == torch._C._profiler._EventType.Allocation:
            yield event.start_time_ns, int(event.typed[1].total_allocated), int(event.typed[1].alloc_size)
        pending.extend(event.children)


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
