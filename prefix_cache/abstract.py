"""What every prompt cache offers, with and without reuse."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import torch
from transformers import GenerationConfig, GenerationMixin, PreTrainedModel
from transformers.cache_utils import Cache
from transformers.utils.generic import ModelOutput

from prefix_cache.counters import Counters
from prefix_cache.errors import BatchError, KeyLengthError, OptionError
from prefix_cache.mode import ordinary_tensors
from prefix_cache.namespace import Label, refuse_labels
from prefix_cache.number import whole_number
from prefix_cache.positions import Positions
from prefix_cache.prompt import TokenIds, row_of
from prefix_cache.tokens import TokenArray

_ASSISTED = "assisted decoding runs the whole prompt over KV that holds its beginning already, and answers wrongly"
_CHANGES_THE_PROMPT = {
    "assistant_model": _ASSISTED,
    "prompt_lookup_num_tokens": _ASSISTED,
    "assistant_early_exit": _ASSISTED,
    # "hybrid" stands in the configs of models with sliding windows, and transformers ignores it.
    "cache_implementation": "the KV lies in this cache",
    "custom_generate": "it may run the prompt in a way of its own",
    "token_healing": "it changes the prompt after the lookup",
}
_OF_THE_PROMPT = ("inputs", "input_ids", "inputs_embeds", "past_key_values", "cache")
# What the model may be handed besides the prompt, since no KV depends on it.
_HANDED_ON = {"use_cache", "output_attentions", "output_hidden_states", "output_router_logits", "tokenizer"}
_OF_GENERATE = {*inspect.signature(GenerationMixin.generate).parameters, *vars(GenerationConfig())} - {"self", "kwargs"}


@dataclass(frozen=True)
class Prefill:
    """logits: [1, vocabulary], of the last prompt token. reused + computed = prompt tokens. stored: newly stored."""

    logits: torch.Tensor
    prompt_tokens: int
    reused_tokens: int
    stored_tokens: int

    @property
    def computed_tokens(self) -> int:
        """Prompt tokens that the model had to run."""
        return self.prompt_tokens - self.reused_tokens


@dataclass(frozen=True)
class Generation:
    """sequences: [1, prompt + new], as `model.generate` returns them. stored: newly stored tokens, of both parts.

    output: what `model.generate` returned where return_dict_in_generate=True asked for scores, logits and so on, else
    None. Hidden states and attentions of the prompt are those of its computed tokens.
    """

    sequences: torch.Tensor
    prompt_tokens: int
    reused_tokens: int
    stored_tokens: int
    output: ModelOutput | None = None


class Hit(ABC):
    """What a lookup hands over, valid inside its `with` block.

    length: leading prompt tokens whose KV lies in `kv` already, at most n - 1. matched: longest stored prefix, at
    most n. kv: an ordinary transformers cache, for `cache=`. suffix: [1, n - length], what is left to run.
    """

    length: int
    matched: int
    kv: Cache
    prompt: TokenArray
    suffix: torch.Tensor

    @abstractmethod
    def store(self, token_ids: TokenIds | None = None) -> int:
        """Store what `kv` holds now, which must be the KV of exactly `token_ids` (default: of the prompt).

        Returns the number of newly stored tokens. Raises KeyLengthError, EditedError, ModelChangedError, ReleasedError.
        """


class Lookup:
    """One lookup, done on entering its `with` block and released at its end, however that is left."""

    __slots__ = ("_asked", "_cache", "_hit")

    def __init__(self, cache: PromptCache, *asked: Any) -> None:
        self._cache = cache
        self._asked: tuple[Any, ...] | None = asked
        self._hit: Hit | None = None

    def __enter__(self) -> Hit:
        """Look up. Raises what `PromptCache.lookup` names, and RuntimeError the second time."""
        if self._asked is None:
            raise RuntimeError("this lookup has been entered already; look up again for another hit")
        asked, self._asked = self._asked, None
        self._hit = hit = self._cache._lookup(*asked)
        return hit

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the hit."""
        hit, self._hit = self._hit, None
        if hit is not None:
            self._cache._release(hit)

    def __del__(self) -> None:
        """Release what was entered by hand and forgotten."""
        self.__exit__(None, None, None)


class PromptCache(ABC):
    """Runs prompts of one model through a cache. `lookup` is the primitive; the rest is built on it."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.model = model
        # An adapter library's wrapper hands on arguments that its own signature does not name.
        unwrap: Any = getattr(model, "get_base_model", lambda: model)
        parameters = inspect.signature(unwrap().forward).parameters
        # Code of a model that is not in transformers 5.24 may still have the name of before; both take the same object.
        self.kv_argument = "cache" if "cache" in parameters else "past_key_values"
        self.takes_positions = "position_ids" in parameters
        self._last_only: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
        self._text_config = model.config.get_text_config()
        self.positions = Positions(model)

    # ---- the contract ------------------------------------------------------------------------------------------

    @abstractmethod
    def _lookup(self, tokens: TokenArray, adapter: Label, salt: Label, room: int) -> Hit:
        """A hit, pinned until `_release`. Raises PromptError for tokens that the model does not have."""

    @abstractmethod
    def _release(self, hit: Hit) -> None:
        """End of a hit, reached on every path."""

    @abstractmethod
    def counters(self) -> Counters:
        """What has been done so far."""

    @abstractmethod
    def clear(self) -> None:
        """Forget everything that is not in use."""

    @abstractmethod
    def check(self) -> None:
        """Walk everything that is held and assert every invariant. Slow; for tests."""

    # ---- what is built on it -----------------------------------------------------------------------------------

    @property
    def _vocab_size(self) -> int | None:
        """Read anew each time: `resize_token_embeddings` changes it."""
        return getattr(self._text_config, "vocab_size", None)

    def lookup(
        self,
        token_ids: TokenIds,
        *,
        adapter: Label = None,
        salt: Label = None,
        room: int = 0,
        attention_mask: torch.Tensor | None = None,
    ) -> Lookup:
        """Longest stored prefix of a prompt, ready to be continued.

        token_ids: [n] or [1, n], or what a tokenizer returns. adapter, salt: further parts of the key. room: tokens to
        come after the prompt, so that the request's KV need not grow. Raises PromptError, BatchError, PaddingError,
        PositionsError, ValueError, TypeError.

            with cache.lookup(ids) as hit:
                out = model(hit.suffix, cache=hit.kv, use_cache=True)
                hit.store()
        """
        if type(room) is not int or room < 0:
            room = whole_number("room", room, 0, "give the number of tokens to come after the prompt, 0 or more")
        if adapter is not None or salt is not None:
            refuse_labels(adapter, salt)
        return Lookup(self, row_of(token_ids, attention_mask), adapter, salt, room)

    def prefill(
        self,
        token_ids: TokenIds,
        *,
        adapter: Label = None,
        salt: Label = None,
        attention_mask: torch.Tensor | None = None,
    ) -> Prefill:
        """Last-token logits of a prompt through the cache; what was computed is stored. Arguments as for `lookup`."""
        with self.lookup(token_ids, adapter=adapter, salt=salt, attention_mask=attention_mask) as hit:
            logits = self.run(hit.suffix, hit.kv)
            return Prefill(logits, len(hit.prompt), hit.length, hit.store())

    @torch.inference_mode()
    def run(self, token_ids: torch.Tensor, kv: Cache) -> torch.Tensor:
        """Logits [1, vocabulary] after the last of `token_ids` [1, n], continuing and extending `kv`."""
        output = self.model(token_ids, use_cache=True, **{self.kv_argument: kv}, **self._last_only)
        logits: torch.Tensor = output.logits[:, -1]
        return logits

    def generate(
        self,
        token_ids: TokenIds,
        *,
        adapter: Label = None,
        salt: Label = None,
        attention_mask: torch.Tensor | None = None,
        **options: Any,
    ) -> Generation:
        """`model.generate` through the cache. Prompt and answer are stored, so that the next turn of a chat hits.

        options: arguments of `model.generate`, e.g. max_new_tokens=64, do_sample=False, generation_config, streamer,
        stopping_criteria. As there, what is not given comes from the model's own generation config. Raises what
        `lookup` raises, BatchError for options that make several sequences of one, OptionError for those under which KV
        would be computed twice or would depend on more than token ids, and PositionsError where the answer might not
        fit.
        """
        self._refuse_options(options)
        options.setdefault("use_cache", True)  # many a model was trained, and saved, with it switched off
        if options.get("max_new_tokens") is not None:
            advice = "give the number of tokens to generate, 1 or more"
            options["max_new_tokens"] = whole_number("max_new_tokens", options["max_new_tokens"], 1, advice)
        tokens = row_of(token_ids, attention_mask)
        new = self._new_tokens(options, len(tokens))
        with self.lookup(tokens, adapter=adapter, salt=salt, room=new) as hit:
            self.positions.require(len(tokens), new)
            prompt = self.suffix_of(tokens, 0, hit.suffix.device)
            generate: Any = self.model.generate
            output = generate(
                inputs=prompt, attention_mask=torch.ones_like(prompt), **{self.kv_argument: hit.kv}, **options
            )
            sequences: torch.Tensor = output if isinstance(output, torch.Tensor) else output.sequences
            # The last token was chosen but never run, so it has no KV yet.
            stored = hit.store(sequences[0, : hit.kv.get_seq_length()])
            told = None if output is sequences else output
            return Generation(sequences, len(tokens), hit.length, stored, told)

    def _asked(self, options: dict[str, Any], name: str) -> Any:
        """An option as `model.generate` takes it: from the call, the config that is handed over, or the model's own."""
        for source in (options.get("generation_config"), getattr(self.model, "generation_config", None)):
            if options.get(name) is None and getattr(source, name, None) is not None:
                return getattr(source, name)
        return options.get(name)

    def _new_tokens(self, options: dict[str, Any], prompt: int) -> int:
        """The most tokens that `model.generate` adds to a prompt of so many."""
        new, length = (self._asked(options, name) for name in ("max_new_tokens", "max_length"))
        if new is not None:
            return int(new)
        if length is not None:
            return max(int(length) - prompt, 0)  # nothing left: transformers says so
        default: int = GenerationConfig()._get_default_generation_params()["max_length"]
        most = getattr(self._text_config, "max_position_embeddings", None)
        return default if most is None else max(min(default, most - prompt), 0)

    def _refuse_options(self, options: dict[str, Any]) -> None:
        """Before anything is run, and wherever the option is hidden: in the call, its config, or the model's own."""
        for name in _OF_THE_PROMPT:
            if name in options:
                raise OptionError(f"{name}: the prompt and its KV come from this cache; leave the option out")
        if "adapter_names" in options:
            raise OptionError(
                "adapter_names: the KV would be stored under the adapters that are active now; call "
                "model.set_adapter(name) before, and leave the option out"
            )
        if strange := sorted(options.keys() - _OF_GENERATE - _HANDED_ON):
            raise OptionError(
                f"{strange[0]}: model.generate would hand it to the model, and stored KV is keyed by token ids alone; "
                "leave it out, or call model.generate without this cache"
            )
        given = options.get("generation_config")
        if options.get("use_cache", getattr(given, "use_cache", None)) is False:
            raise OptionError("use_cache=False: without KV there is nothing to reuse; leave the option out")
        for name, why in _CHANGES_THE_PROMPT.items():
            if (found := self._asked(options, name)) and not (name == "cache_implementation" and found == "hybrid"):
                raise OptionError(f"{name}: {why}; leave the option out, or call model.generate without this cache")
        for name in ("num_beams", "num_return_sequences"):
            if (found := self._asked(options, name) or 1) != 1:
                raise BatchError(f"{name}={found}: a prefix cache serves one sequence at a time; use {name}=1")

    def suffix_of(self, tokens: TokenArray, length: int, device: torch.device) -> torch.Tensor:
        """[1, n - length], in memory of its own: who writes to it does not change the key."""
        with ordinary_tensors():  # a caller may train on it later, outside the mode of this lookup
            return torch.from_numpy(tokens[None, length:].copy()).to(device)


def require_length(kv: Cache, tokens: int) -> None:
    """Raise KeyLengthError unless every layer of `kv` holds exactly `tokens` positions."""
    for index in range(len(kv.layers)):
        held = kv.get_seq_length(index)
        if held != tokens:
            raise KeyLengthError(
                f"layer {index} holds {held} positions, but {tokens} token ids were given to store; pass the ids of "
                "exactly what the model has run (after generate: without the last token, which was never run)"
            )
