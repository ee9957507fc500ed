"""UpdateFeatures 0 to 2: change the finalized levels of features (KIP-584).

Any broker answers. Either all changes are made, or none.

* A feature that the cluster does not have, a level that it does not support, an unknown kind of
  update, a lower level with the kind "upgrade", and a higher level with another kind are
  INVALID_UPDATE_VERSION. A feature that is named twice counts once, with its last level.
* An error applies to the whole response. Up to version 1, a response without an error has a result
  for each feature.
* In version 0, every update is an upgrade: `allow_downgrade` is ignored.
* Only the levels of "transaction.version" and "share.version" can be changed. A change of any other
  feature is INVALID_UPDATE_VERSION, although Kafka may allow it.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokclient.protocol.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from aiokclient.protocol.messages.update_features import FeatureUpdateKey, UpdatableFeatureResult
from aiokclient.testing.broker.call import Call, Reply
from aiokclient.testing.broker.codes import Code, Refused
from aiokclient.testing.broker.features import SHARE, TRANSACTIONS, Feature, list_features
from aiokclient.testing.broker.transactions.coordinator import get_transactions

_NO_RESULTS = 2
_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


def handle(call: Call) -> Reply:
    request: UpdateFeaturesRequest = call.request
    updates = {each.feature: each for each in request.feature_updates}
    code, message = call.find_refusal() or call.check_cluster_authorization(), ""
    if not code:
        known = {each.name: each for each in list_features(call)}
        try:
            for update in updates.values():
                _check_update(known.get(update.feature), update)
        except Refused as refused:
            code, message = refused.code, refused.message
    if not code and not request.validate_only:
        _apply_updates(call, updates)
    if code:
        return UpdateFeaturesResponse(error_code=code, error_message=message)
    if call.version >= _NO_RESULTS:
        return UpdateFeaturesResponse()
    return UpdateFeaturesResponse(
        results=[UpdatableFeatureResult(feature=name) for name in updates]
    )


def _apply_updates(call: Call, updates: Mapping[str, FeatureUpdateKey]) -> None:
    if TRANSACTIONS in updates:
        get_transactions(call.cluster).set_level(updates[TRANSACTIONS].max_version_level)
    if SHARE in updates:
        call.cluster.set_share_level(updates[SHARE].max_version_level)


def _check_update(feature: Feature | None, update: FeatureUpdateKey) -> None:
    """Raise Refused unless a feature can have the requested level."""
    kind, level = update.upgrade_type, update.max_version_level
    if kind not in (_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE):
        raise _make_refusal(update, "The kind of update is unknown.")
    if feature is None or not feature.lowest <= level <= feature.highest:
        raise _make_refusal(update, "The brokers do not support this level.")
    if level < feature.level and kind == _UPGRADE:
        raise _make_refusal(update, "An upgrade cannot lower the level.")
    if level > feature.level and kind != _UPGRADE:
        raise _make_refusal(update, "A downgrade cannot raise the level.")
    if level != feature.level and feature.name not in (TRANSACTIONS, SHARE):
        raise _make_refusal(update, "The embedded cluster cannot change this feature.")


def _make_refusal(update: FeatureUpdateKey, why: str) -> Refused:
    text = f"Level {update.max_version_level} of {update.feature!r} is not possible. {why}"
    return Refused(Code.INVALID_UPDATE_VERSION, text)
