"""What must agree, besides the tokens, before KV may be reused."""

from __future__ import annotations

from typing import NamedTuple


class Namespace(NamedTuple):
    """Tagged parts of the key: adapter "x" and salt "x" are different namespaces, and None is neither.

    model: fingerprint of the weights as they are now. adapter: the caller's label of an adapter.
    salt: keeps tenants apart, so that nobody's timing shows what another tenant has asked.
    """

    model: str
    adapter: str | None = None
    salt: str | None = None
