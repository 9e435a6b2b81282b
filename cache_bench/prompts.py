"""Prompts to measure with: a fixed prefix, and suffixes that never repeat."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from cache_bench.model import load, load_tokenizer

SYSTEM_PROMPT = (Path(__file__).parent / "system_prompt.txt").read_text(encoding="utf-8")

Tokens = npt.NDArray[np.int64]


class Prompts:
    """Seeded token ids for a model; where it understands text, prefixes are the beginning of a real system prompt.

    vocabulary: how many tokens there are to begin a suffix with. longest: tokens of the longest prefix; None: any.
    """

    def __init__(self, model: str, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.vocabulary = int(load(model).config.vocab_size)
        self._firsts = self._random.permutation(self.vocabulary)
        self._given = 0
        tokenizer = load_tokenizer(model)
        self._text = None if tokenizer is None else np.asarray(tokenizer(SYSTEM_PROMPT)["input_ids"], dtype=np.int64)
        self.longest = None if self._text is None else len(self._text)

    def prefix(self, length: int) -> Tokens:
        """The first `length` tokens of the system prompt, or seeded ones. ValueError: the text is too short."""
        if self._text is None:
            return self._random.integers(0, self.vocabulary, length)
        if length > len(self._text):
            raise ValueError(f"the system prompt has {len(self._text)} tokens for this model, {length} were asked for")
        return self._text[:length]

    def fresh(self, length: int) -> Tokens:
        """Seeded tokens, the first of which no earlier call has given: no two of them share even one token of prefix.

        Raises LookupError when the vocabulary is used up.
        """
        if self._given == self.vocabulary:
            raise LookupError(f"all {self.vocabulary} tokens have begun a suffix; open the scenario anew")
        tokens = self._random.integers(0, self.vocabulary, length)
        tokens[0] = self._firsts[self._given]
        self._given += 1
        return tokens
