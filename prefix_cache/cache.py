"""The prefix cache: a radix tree of stored KV, request buffers that are recycled, and a budget in bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

import torch
from transformers import PreTrainedModel
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer

from prefix_cache.abstract import Hit, PromptCache, require_length
from prefix_cache.buffer import BufferLayer, KVBuffer, RequestCache, segments_of
from prefix_cache.counters import Counters
from prefix_cache.errors import (
    LayoutError,
    ModelChangedError,
    PromptError,
    ReleasedError,
    UnsupportedCacheError,
    UnsupportedModelError,
)
from prefix_cache.fingerprint import ModelFingerprint
from prefix_cache.layout import (
    Layout,
    layout_of,
    probe,
    refuse_adapters,
    refuse_dynamic_quantisation,
    refuse_layers,
    refuse_own_positions,
    refuse_two_way,
)
from prefix_cache.namespace import Label, Namespace, refuse_labels
from prefix_cache.number import whole_number
from prefix_cache.pool import BufferPool
from prefix_cache.positions import learned_positions
from prefix_cache.prompt import TokenIds, as_tokens, refuse_strange
from prefix_cache.run import KVRun, copy_of, gather
from prefix_cache.tokens import TokenArray
from prefix_cache.tree import Match, Node, RadixTree

_IDLE_SHARE = 4  # idle buffers may hold at most 1/4 of the budget
_POSITIONS_THAT_MOVE = ("dynamic", "longrope")  # RoPE whose angles depend on the total length


class PrefixHit(Hit):
    """A hit of PrefixCache. Its KV lies in a buffer of its own; the stored KV it came from is pinned."""

    kv: RequestCache

    def __init__(self, cache: PrefixCache, namespace: Namespace, tokens: TokenArray) -> None:
        self.prompt = tokens
        self.namespace = namespace
        self.node: Node[KVRun] | None = None
        self.changes = -1
        self.writes = 0  # of the buffer, when nothing had run yet
        self._cache = cache

    def store(self, token_ids: TokenIds | None = None) -> int:
        """See Hit.store; refused entries (larger than the budget can ever hold) count in `refused_tokens`."""
        return self._cache._store(self, token_ids)


class PrefixCache(PromptCache):
    """Keeps the KV of prompts of one causal LM and hands the longest stored beginning to the next request.

    model: a Hugging Face causal LM in eval mode. budget_bytes: bound on stored KV plus idle request buffers, counted
    at their storages; None: unbounded. idle_buffers: most request buffers kept for recycling.
    Thread-safe: bookkeeping is locked, the model runs outside the lock.
    Raises UnsupportedModelError, ValueError, TypeError.
    """

    def __init__(self, model: PreTrainedModel, *, budget_bytes: int | None = None, idle_buffers: int = 4) -> None:
        super().__init__(model)
        if budget_bytes is not None:
            advice = "give bytes as an int of 1 or more, e.g. 2 << 30 for 2 GiB, None for no bound"
            budget_bytes = whole_number("budget_bytes", budget_bytes, 1, f"{advice}, or use NullPrefixCache")
        idle_buffers = whole_number("idle_buffers", idle_buffers, 0, "give 0 (every hit copies) or more")
        _refuse_model(model)
        self._budget = budget_bytes
        self._lock = threading.RLock()
        self._tree: RadixTree[KVRun] = RadixTree()
        self._pool = BufferPool(idle_buffers)
        self._in_use: set[KVBuffer] = set()
        self._count = Counters()
        self._fingerprint = ModelFingerprint(model)
        self._generation = self._fingerprint.generation
        # By state of the model; equal layouts are one object, so that states share idle buffers.
        self._layouts: dict[str, Layout] = {}
        self._state()

    # ---- the request path --------------------------------------------------------------------------------------

    def _lookup(self, tokens: TokenArray, adapter: Label, salt: Label, room: int) -> PrefixHit:
        if self.model.training:
            raise UnsupportedModelError(
                "the model is in training mode, where dropout makes KV random; call model.eval() first"
            )
        with self._lock:
            state = self._state()
            self.positions.require(len(tokens))
            namespace = Namespace(state, adapter, salt)
            match = self._tree.match(namespace, tokens)
            refuse_strange(tokens, self._vocab, match.length)  # what is stored already was looked at then
            # At least one token must run, or there are no logits. This is the only place that says so.
            length = min(match.length, len(tokens) - 1)
            hit = PrefixHit(self, namespace, tokens)
            hit.matched, hit.length, hit.changes = match.length, length, self._tree.changes
            path = match.node.path()
            buffer = self._pool.take(self._layouts[state], path, length, len(tokens) + room)
            copied = buffer.fill(path, length)
            hit.writes = buffer.writes
            hit.kv = RequestCache(buffer, length)
            hit.suffix = self.suffix_of(tokens, length, self._device)
            # Nothing below can fail, so that no pin is left behind by a hit that nobody received.
            self._tree.touch(match.node)
            self._tree.pin(match.node)
            self._in_use.add(buffer)
            hit.node = match.node
            count = self._count
            count.requests += 1
            count.prompt_tokens += len(tokens)
            count.matched_tokens += match.length
            count.visited_nodes += match.visited
            count.copied_bytes += copied
            count.recycled_hits += length > 0 and not copied
        return hit

    def _store(self, hit: PrefixHit, token_ids: TokenIds | None) -> int:
        tokens = hit.prompt if token_ids is None else as_tokens(token_ids, vocab_size=self._vocab_size)
        with self._lock:
            if hit.node is None:
                raise ReleasedError("store() after the `with cache.lookup(...)` block has ended; store inside it")
            # What was cropped away may have been replaced by other tokens.
            reused = min(hit.length, hit.kv.held().known, len(tokens))
            if token_ids is not None and (tokens[:reused] != hit.prompt[:reused]).any():
                raise PromptError(
                    f"the token ids to store differ from the prompt within its first {reused} tokens, whose KV was "
                    "reused; store the ids of what the model has really run"
                )
            # A change that this cheap look misses is noticed by the next lookup, which drops what is stored here.
            if self.model.training or not self._fingerprint.still(hit.namespace.model):
                raise ModelChangedError(
                    "the model's weights, adapters, autocast or mode changed between lookup and store; nothing was "
                    "stored, because it is not known which of them this KV was computed with. Look up again."
                )
            buffer = hit.kv.held()
            if not hit.kv.holds(len(tokens)):
                require_length(hit.kv, len(tokens))
            hit.kv.refuse_edited()
            node, stored_before = self._insert(
                hit.namespace, tokens, lambda start, stop: copy_of(buffer.slabs, start, stop), hit
            )
            if node is None:
                return 0
            # The buffer equals the stored KV up to what it was filled with, and in what was just stored from it. Where
            # somebody else's computation was stored first, its last digits may differ from ours: not the same bits.
            if stored_before <= buffer.known:
                buffer.segments = segments_of(node.path(), len(tokens))
            return len(tokens) - stored_before

    def _release(self, hit: Hit) -> None:
        assert isinstance(hit, PrefixHit)
        with self._lock:
            assert hit.node is not None
            self._tree.unpin(hit.node)
            hit.node = None
            count = self._count
            count.grown_bytes += hit.kv.grown_nbytes
            buffer = hit.kv.release()
            if buffer.compiled or hit.kv.grown_nbytes or buffer.writes != hit.writes:  # the model has run over it
                count.reused_tokens += hit.length
            self._in_use.discard(buffer)
            if hit.namespace.model not in self._layouts:
                self._drop_outdated()  # what this hit had pinned when the weights changed
            else:
                if hit.length:
                    self._make_idle_room(buffer.nbytes)
                self._pool.give(buffer, self._idle_room())
            self._note_peak(self._tree.nbytes)

    # ---- storing from elsewhere --------------------------------------------------------------------------------

    def insert(self, token_ids: TokenIds, kv: Cache, *, adapter: Label = None, salt: Label = None) -> int:
        """Store copies of the KV that `model` has computed for `token_ids` [n] into a cache of the caller's.

        kv: a DynamicCache of exactly n positions, batch 1; it is neither kept nor changed. Returns the number of
        newly stored tokens. Raises PromptError, BatchError, UnsupportedCacheError, KeyLengthError, LayoutError,
        EditedError, TypeError.
        """
        refuse_labels(adapter, salt)
        tokens = as_tokens(token_ids, vocab_size=self._vocab_size)
        with self._lock:
            state = self._state()
            layout = self._layouts[state]
            tensors = _tensors_of(kv, len(tokens), layout)
            node, stored_before = self._insert(
                Namespace(state, adapter, salt), tokens, lambda start, stop: gather(layout, tensors, start, stop)
            )
            return len(tokens) - stored_before if node is not None else 0

    # ---- housekeeping ------------------------------------------------------------------------------------------

    def counters(self) -> Counters:
        """A consistent snapshot."""
        with self._lock:
            return replace(
                self._count,
                tokens_live=self._tree.tokens,
                stored_bytes_live=self._tree.nbytes,
                idle_bytes_live=self._pool.nbytes,
                in_use_bytes_live=sum(buffer.nbytes for buffer in self._in_use),
            )

    def clear(self) -> None:
        """Drop all stored KV and idle buffers but what requests in flight have pinned."""
        with self._lock:
            self._pool.clear()
            self._count.evicted_tokens += self._tree.drop(keep=lambda _: False)

    def drop_idle_buffers(self) -> None:
        """Give back the memory kept for recycling; the next hits pay one copy."""
        with self._lock:
            self._pool.clear()

    def forget_idle_buffers(self) -> None:
        """Let idle buffers forget whose KV they hold, but keep their memory: the next hit pays one copy."""
        with self._lock:
            self._pool.forget()

    @property
    def nbytes_per_token(self) -> int:
        """KV bytes of one token as the model is now: 2 x layers x KV heads x head dim x bytes per element."""
        with self._lock:
            return self._layouts[self._state()].nbytes_per_token

    def check(self) -> None:
        """See PromptCache.check. Compares what recycled buffers claim to hold with the stored KV, bit by bit."""
        with self._lock:
            storages: set[int] = set()
            nbytes = 0
            for node in self._tree.nodes():
                run = node.stored()
                assert run.tokens == len(node.tokens), "a node's KV is not as long as its run"
                for slab in run.slabs:
                    assert not slab.requires_grad, "stored KV requires a gradient"
                    assert slab.grad_fn is None, "stored KV carries its graph"
                    storage = slab.untyped_storage()
                    assert storage.data_ptr() not in storages, "two nodes share a storage"
                    assert storage.nbytes() == slab.numel() * slab.element_size(), (
                        "a node keeps more alive than its run"
                    )
                    storages.add(storage.data_ptr())
                    nbytes += storage.nbytes()
            self._tree.check()
            assert nbytes == self._tree.nbytes, "reported bytes differ from the storages'"
            if self._budget is not None:
                assert nbytes + self._pool.nbytes <= self._budget, "over budget"
            for buffer in self._pool.idle():
                assert all(slab.untyped_storage().data_ptr() not in storages for slab in buffer.slabs)
                if not buffer.foreign_writes:  # else it is forgotten when it is taken
                    self._check_buffer(buffer)

    def _check_buffer(self, buffer: KVBuffer) -> None:
        births = {segment.birth for segment in buffer.segments}
        for node in self._tree.nodes():
            if node.birth in births:
                path = node.path()
                stop = buffer.agreement(path)
                for mine, stored in zip(buffer.slabs, node.stored().slabs, strict=True):
                    if stop > node.start:
                        same = torch.equal(mine[:, :, node.start : stop], stored[:, :, : stop - node.start])
                        assert same, "a recycled buffer differs from the stored KV it claims to hold"

    # ---- within (the lock is held) -----------------------------------------------------------------------------

    def _state(self) -> str:
        """Name of the model's present state. Everything stored under weights that have changed since is dropped."""
        state = self._fingerprint.current()
        if self._fingerprint.generation != self._generation:
            self._generation = self._fingerprint.generation
            self._layouts.clear()
            self._pool.clear()
            self._drop_outdated()
        if state not in self._layouts:  # a model that cannot run yet is probed again next time
            layout = self._probe()
            self._layouts[state] = next((each for each in self._layouts.values() if each == layout), layout)
        return state

    def _drop_outdated(self) -> None:
        dropped = self._tree.drop(keep=lambda namespace: namespace.model in self._layouts)
        self._count.evicted_tokens += dropped

    def _probe(self) -> Layout:
        name = type(self.model).__name__
        refuse_adapters(self.model)
        refuse_dynamic_quantisation(self.model)
        refuse_layers(DynamicCache(config=self.model.config), name)
        # Both walk far for an attribute: too slow for every request.
        self._device = self.model.device
        self._vocab = self._vocab_size
        cache, other = self._kv_of([0, 0]), self._kv_of([0, 1])
        self.positions.learned = learned_positions(self.model, lambda: self._kv_of([0, 0]))
        layout = probe(cache, name)
        refuse_two_way(cache, other, name)
        if self.takes_positions:
            # Some models count no padding.
            token = int(getattr(self._text_config, "pad_token_id", None) == 0)
            refuse_own_positions(self._kv_of([token, 0], [0, 1]), self._kv_of([token, 0]), name)
        return layout

    @torch.no_grad()
    def _kv_of(self, tokens: list[int], positions: list[int] | None = None) -> DynamicCache:
        cache = DynamicCache(config=self.model.config)
        ids = torch.tensor([tokens], device=self._device)
        told = {} if positions is None else {"position_ids": torch.tensor([positions], device=self._device)}
        self.model(ids, use_cache=True, **{self.kv_argument: cache}, **self._last_only, **told)
        return cache

    def _insert(
        self,
        namespace: Namespace,
        tokens: TokenArray,
        make: Callable[[int, int], KVRun],
        hit: PrefixHit | None = None,
    ) -> tuple[Node[KVRun] | None, int]:
        if hit is not None and tokens is hit.prompt and hit.changes == self._tree.changes and hit.node is not None:
            match = Match(hit.matched, hit.node, 0)  # nobody has stored or evicted anything since the lookup
        else:
            match = self._tree.match(namespace, tokens)
        missing = len(tokens) - match.length
        needed = missing * self._layouts[namespace.model].nbytes_per_token
        self._tree.pin(match.node)  # making room must not evict what the new run hangs on
        try:
            fits = self._make_room(needed)
        finally:
            self._tree.unpin(match.node)
        if not fits and match.length:
            fits = self._make_room_behind(match, missing, needed, hit)
            match = self._tree.match(namespace, tokens)
        if not fits:
            self._count.refused_tokens += missing
            return None, match.length
        node, before = self._tree.insert(namespace, tokens, make, match)
        self._count.stored_tokens += len(tokens) - before
        self._note_peak(self._tree.transient_nbytes)
        return node, before

    def _make_room_behind(self, match: Match[KVRun], missing: int, needed: int, hit: PrefixHit | None) -> bool:
        """Make room by giving up what the matched run holds beyond the match, which its pin has kept so far."""
        assert self._budget is not None
        front_nbytes = match.length * (needed // missing)
        if match.length == match.node.end or front_nbytes + needed > self._budget:
            return False
        front = self._tree.cut(match.node, match.length)
        self._note_peak(self._tree.transient_nbytes)
        if hit is not None and hit.node is match.node and hit.matched <= front.end:
            self._tree.pin(front)
            self._tree.unpin(match.node)
            hit.node = front
        self._tree.pin(front)
        try:
            return self._make_room(needed)
        finally:
            self._tree.unpin(front)

    def _make_room(self, needed: int) -> bool:
        """Evict until `needed` more bytes fit. False, with nothing lost, where that cannot be reached."""
        if self._budget is None or not needed:
            return True
        if needed > self._budget - self._tree.nbytes + self._tree.evictable_nbytes():
            return False
        while self._tree.nbytes + self._pool.nbytes + needed > self._budget:
            if self._pool.drop(recycled=False):
                continue
            leaf = self._tree.pop_lru()
            if leaf is not None:
                self._count.evicted_tokens += len(leaf.tokens)
            else:
                dropped = self._pool.drop(recycled=True)
                assert dropped, "neither leaves nor idle buffers are left, yet room was promised"
        return True

    def _make_idle_room(self, needed: int) -> None:
        """Evict the least recently used for a buffer that began with a hit; at a full budget none would be hot else."""
        if self._budget is None or needed > self._budget // _IDLE_SHARE:
            return
        while self._tree.nbytes + needed > self._budget and (leaf := self._tree.pop_lru()) is not None:
            self._count.evicted_tokens += len(leaf.tokens)

    def _idle_room(self) -> int | None:
        if self._budget is None:
            return None
        return min(self._budget // _IDLE_SHARE, self._budget - self._tree.nbytes)

    def _note_peak(self, stored: int) -> None:
        peak = stored + self._pool.nbytes
        self._count.peak_bytes = max(self._count.peak_bytes, peak)


def _refuse_model(model: PreTrainedModel) -> None:
    name = type(model).__name__
    config = model.config.get_text_config()
    if model.config.is_encoder_decoder:
        raise UnsupportedModelError(f"{name} is an encoder-decoder; a prefix cache needs a decoder-only causal LM")
    rope = getattr(config, "rope_parameters", None) or {}
    for parameters in [rope, *(part for part in rope.values() if isinstance(part, dict))]:
        if parameters.get("rope_type") in _POSITIONS_THAT_MOVE:
            raise UnsupportedModelError(
                f"{name} uses RoPE of type {parameters['rope_type']!r}: keys depend on the length of the whole prompt, "
                "so that KV of a shorter one cannot be reused. Serve this model through NullPrefixCache."
            )


def _tensors_of(kv: Cache, tokens: int, layout: Layout) -> list[tuple[torch.Tensor, torch.Tensor]]:
    tensors = []
    for index, layer in enumerate(getattr(kv, "layers", ())):
        if not isinstance(layer, DynamicLayer | BufferLayer) or type(layer) not in (DynamicLayer, BufferLayer):
            raise UnsupportedCacheError(
                f"layer {index} is a {type(layer).__name__}: its KV cannot be cut at an arbitrary length. "
                "Fill a DynamicCache() (without a config, so that no sliding layers are made) and insert that."
            )
        if layer.keys is None or layer.values is None:
            raise UnsupportedCacheError(f"layer {index} holds no KV; run the model over the prompt before inserting")
        for what, tensor in (("keys", layer.keys), ("values", layer.values)):
            if tensor.shape[0] != 1:
                raise LayoutError(
                    f"layer {index} holds {what} of {tensor.shape[0]} sequences; insert one sequence at a time"
                )
        tensors.append((layer.keys, layer.values))
    if not tensors:
        raise UnsupportedCacheError(f"{type(kv).__name__} holds no layers; fill a DynamicCache by running the model")
    require_length(kv, tokens)
    if isinstance(kv, RequestCache):
        kv.refuse_edited()
    for index, (keys, values) in enumerate(tensors):
        if values.shape[2] != tokens:
            raise LayoutError(f"layer {index} holds keys of {keys.shape[2]} positions, but values of {values.shape[2]}")
    if layout_of(tensors) != layout:
        raise LayoutError(
            "the KV differs in layers, heads, head dim, dtype or device from what this cache's model produces; insert "
            "only KV computed by that model, on its device and in its dtype"
        )
    return tensors
