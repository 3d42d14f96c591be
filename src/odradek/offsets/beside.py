"""A second group in the same kind of store, beside another: `file:offsets.json` has `file:offsets.json.backfill`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from odradek.errors import OffsetStoreError
from odradek.offsets.store import OF_OLDER_PROGRAMS, parse_address


def beside(address: str, options: Mapping[str, Any], suffix: str) -> tuple[str, dict[str, Any]]:
    """Return the address and the options of the store whose file or group has a suffix.

    Args:
        address: The address of a store.
        options: Its options that are not in the address.
        suffix: What the name of the file or of the group ends in.

    Raises:
        OffsetStoreError: The store has no place for another group beside it.
    """
    parsed = parse_address(address, options)
    is_of_others = not parsed.options.keys().isdisjoint(OF_OLDER_PROGRAMS)
    if parsed.scheme in ("file", "kafka", "zookeeper") and not is_of_others:
        path, mark, query = address.partition("?")
        return f"{path.rstrip('/')}{quote(suffix)}{mark}{query}", dict(options)
    if is_of_others or not (group := parsed.options.get("group")):
        raise OffsetStoreError(f"{parsed.text}: a store without a group has no place beside it: give it a group")
    # An option beside the address takes precedence over the one in it.
    return address, {**options, "group": f"{group}{suffix}"}
