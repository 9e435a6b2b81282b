"""Numbers with units as text."""

from __future__ import annotations

import math
from collections.abc import Callable

SECONDS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
BYTES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


def quantity(value: float | None, unit: str) -> str:
    """Return a value as text: seconds as ms or µs, ratios as %, factors as x, bytes and counts to the last digit.

    Bytes become KiB, MiB or GiB only if nothing is lost: 7 MiB and one byte is not "7 MiB".
    """
    if value is None:
        return "-"
    if not math.isfinite(value):
        return str(value)
    worded = WORDED.get(unit)
    return worded(value) if worded is not None else _counted(value, unit)


def _counted(value: float, unit: str) -> str:
    number = f"{int(value):,}" if float(value).is_integer() else f"{value:,.4g}"
    return f"{number} {unit}".rstrip()


def _ratio(value: float) -> str:
    return f"{100 * value:.2f} %" if abs(value) < 1.5 else _factor(value)


def _factor(value: float) -> str:
    return f"{value:.4g}x"


def change(then: float, now: float, unit: str) -> str:
    """Return e.g. "from 10 to 11 tokens", with the unit once if both values have the same."""
    before, after = quantity(then, unit), quantity(now, unit)
    number, _, name = before.rpartition(" ")
    return f"from {number if number and after.endswith(f' {name}') else before} to {after}"


def _seconds(value: float) -> str:
    for size, name in SECONDS:
        if abs(value) >= size:
            return f"{value / size:.4g} {name}"
    return f"{value / 1e-9:.4g} ns"


def _bytes(value: float) -> str:
    for size, name in BYTES:
        if value and value % size == 0:
            return f"{int(value) // size:,} {name}"
    return f"{value:,} B" if isinstance(value, int) else f"{value:,.10g} B"


WORDED: dict[str, Callable[[float], str]] = {"s": _seconds, "ratio": _ratio, "x": _factor, "B": _bytes}


def percent(share: float | None, *, signed: bool = False) -> str:
    """Return a share such as 0.0123 as "1.23 %", and more than 1000 % as a factor."""
    if share is None:
        return "-"
    if not math.isfinite(share):
        return ("+" if share > 0 else "-") + "inf"
    if share >= 10:
        return f"{share + 1:.3g}x"
    return f"{100 * share:{'+' if signed else ''}.2f} %"
