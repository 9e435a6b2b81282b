"""Names that others chose, made fit to be shown: scenarios, branches, commands."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: str) -> str:
    """`text` on one line, without what XML forbids or what would rearrange its surroundings (bidi marks)."""
    spaced = "".join(" " if each in "\t\n\r" else each for each in text)
    return "".join(REPLACEMENT if unicodedata.category(each) in HIDDEN else each for each in spaced)


def shortened(text: str, characters: int) -> str:
    """At most `characters` of `text`, what lies in the middle left out: names differ at their ends."""
    text = plain(text)
    if len(text) <= characters:
        return text
    head = (characters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (characters - 1 - head) :]}"
