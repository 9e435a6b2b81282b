"""What must agree, besides the tokens, before KV may be reused."""

from __future__ import annotations

from typing import NamedTuple

Label = str | bytes | None


class Namespace(NamedTuple):
    """Tagged parts of the key: adapter "x" and salt "x" are different namespaces, and None is neither.

    model: fingerprint of the weights as they are now. adapter: the caller's label of an adapter.
    salt: keeps tenants apart, so that nobody's timing shows what another tenant has asked.
    """

    model: str
    adapter: Label = None
    salt: Label = None


def refuse_labels(adapter: object, salt: object) -> None:
    """Raise TypeError unless both may be parts of a key. 1, 1.0 and True are equal as keys, yet different tenants."""
    for name, label in (("adapter", adapter), ("salt", salt)):
        if label is not None and not isinstance(label, str | bytes):
            raise TypeError(  # without the value: a salt may be a secret
                f"{name} of type {type(label).__name__}: {name} may be a str, bytes or None; pass a name that is equal "
                "for all requests that may share KV"
            )
