"""UpdateFeatures: the levels of Kafka's features, all of those in a request or none (KIP-584).

`transaction.version` and others may go up and down; `metadata.version` only up, as in Apache Kafka. v1 (KIP-778) adds
the type of the change, and to only check it; v2 answers one result for all.

Source in Kafka: `FeatureControlManager.updateFeatures`.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from kio.schema.errors import ErrorCode

from odradek.broker.api import Request, api
from odradek.broker.errors import NO_ERROR, ApiError
from odradek.broker.protocol import Message, given
from odradek.broker.turns import each
from odradek.storage.metadata.metadata_image import METADATA_VERSION

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3
_LAST_WITH_RESULTS = 1


@api(57, "UpdateFeatures", range(3))
async def update_features(request: Request) -> Message:
    """Change the levels of features."""
    broker, updates = request.broker, request.body.feature_updates
    await broker.turns.finish(each(updates, partial(_check, request)))
    levels = {update.feature: update.max_version_level for update in updates}
    if levels and not given(request.body, "validate_only", False):
        await broker.topics.change(partial(broker.logs.metadata.set_feature_levels, levels))
    results = [{"feature": name, "error_code": NO_ERROR, "error_message": "NONE"} for name in levels]
    return {
        "error_code": NO_ERROR,
        "error_message": None,
        "results": results if request.version <= _LAST_WITH_RESULTS else [],
    }


def _check(request: Request, update: Any) -> None:
    name, level = update.feature, update.max_version_level
    # Version 0 could allow a downgrade, which Kafka takes no notice of any more.
    kind = given(update, "upgrade_type", _UPGRADE)
    present = request.broker.logs.metadata_image.features.get(name, 0)
    lowest, highest = request.broker.features.get(name, (0, 0))
    problem = ""
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        problem = "The controller does not support the given upgrade type."
    elif level < 0:
        problem = "A feature version cannot be less than 0."
    elif not lowest <= level <= highest:
        what = f"only supports versions {lowest}-{highest}" if highest else "does not support this feature."
        problem = f"Local controller {request.broker.node_id} {what}"
    elif level < present and kind == _UPGRADE:
        problem = (
            "Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe "
            "downgrade."
        )
    elif level > present and kind != _UPGRADE:
        problem = "Can't downgrade to a newer version."
    if problem:
        _fail(f"Invalid update version {level} for feature {name}. {problem}")
    if name == METADATA_VERSION and level < present:
        reason = (
            "Unsafe metadata downgrade is not supported in this version."
            if kind == _UNSAFE_DOWNGRADE
            else "Refusing to perform the requested downgrade because it might delete metadata information."
        )
        _fail(f"Unsupported metadata.version downgrade from {present} to {level}. {reason}")


def _fail(reason: str) -> None:
    text = f"The update failed for all features since the following feature had an error: {reason}"
    raise ApiError(ErrorCode.invalid_update_version, text)
