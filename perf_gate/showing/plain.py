"""Makes names of scenarios, branches and commands safe to show."""

from __future__ import annotations

import unicodedata

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
HIDDEN = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def plain(text: str) -> str:
    """Return `text` on one line, without what XML forbids or what would reorder the text around it (bidi marks)."""
    spaced = "".join(" " if each in "\t\n\r" else each for each in text)
    return "".join(REPLACEMENT if unicodedata.category(each) in HIDDEN else each for each in spaced)


def shortened(text: str, characters: int) -> str:
    """Return at most `characters` of `text`; the middle is left out, because names differ at their ends."""
    text = plain(text)
    if len(text) <= characters:
        return text
    head = (characters - 1) // 2
    return f"{text[:head]}…{text[len(text) - (characters - 1 - head) :]}"
