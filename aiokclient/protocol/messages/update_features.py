"""UpdateFeatures, key 57: changes the levels of the cluster's features (KIP-584)."""

from __future__ import annotations

from aiokclient.protocol.schema import (
    Request,
    Response,
    Route,
    Struct,
    array,
    boolean,
    int8,
    int16,
    int32,
    string,
)


class FeatureUpdateKey(Struct):
    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)


class UpdateFeaturesRequest(
    Request["UpdateFeaturesResponse"], key=57, versions="0-2", flexible="0+", route=Route.CONTROLLER
):
    timeout_ms: int = int32(default=60000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    feature: str = string()
    error_code: int = int16()
    error_message: str | None = string(null="0+")


class UpdateFeaturesResponse(Response, request=UpdateFeaturesRequest):
    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = string(null="0+")
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1", ignorable=True)
