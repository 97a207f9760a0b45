"""Custom resources: what is known of their fields, so that one misspelt is found.

Of KEDA and the Prometheus operator there are models made from their definitions. Of the others here are the fields that
the chart uses, from the API's references; whatever else stands in an object is an error.
"""

from typing import Any

import jsonschema
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PrometheusRule, ServiceMonitor

_MODELS = {model.__name__: model for model in (ScaledObject, ServiceMonitor, PrometheusRule)}

_COUNT_OR_PERCENT = {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^[0-9]+%$"}]}
_PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
_NAME = {"type": "string", "minLength": 1, "maxLength": 253}
_LABELS = {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}}


def _object(required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = {**required, **(optional or {})}
    return {"type": "object", "properties": properties, "required": [*required], "additionalProperties": False}


_ROLLOUT = _object(
    {}, {"partition": {"type": "integer"}, "maxUnavailable": _COUNT_OR_PERCENT, "maxSurge": _COUNT_OR_PERCENT}
)
_POD_TEMPLATE = _object({"metadata": {"type": "object"}, "spec": {"type": "object"}})
_GROUP = _object(
    {"workerTemplate": _POD_TEMPLATE},
    {
        "leaderTemplate": _POD_TEMPLATE,
        "size": {"type": "integer", "minimum": 1},
        "restartPolicy": {"enum": ["RecreateGroupOnPodRestart", "None"]},
    },
)
_ROUTE_BACKEND = _object({"name": _NAME}, {"group": {"type": "string"}, "kind": _NAME, "port": _PORT})
_PARENT = _object(
    {"name": _NAME}, {"namespace": _NAME, "sectionName": _NAME, "port": _PORT, "group": _NAME, "kind": _NAME}
)
_TIMEOUTS = _object({}, {"request": {"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}})


def _route(rule_extras: dict[str, Any]) -> dict[str, Any]:
    rule = _object({"backendRefs": {"type": "array", "minItems": 1, "items": _ROUTE_BACKEND}}, rule_extras)
    return _object(
        {"parentRefs": {"type": "array", "minItems": 1, "items": _PARENT}, "rules": {"type": "array", "items": rule}},
        {"hostnames": {"type": "array", "items": _NAME}},
    )


_SPECS = {
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): _object(
        {"leaderWorkerTemplate": _GROUP},
        {
            "replicas": {"type": "integer", "minimum": 0},
            "startupPolicy": {"enum": ["LeaderCreated", "LeaderReady"]},
            "rolloutStrategy": _object({"type": {"const": "RollingUpdate"}}, {"rollingUpdateConfiguration": _ROLLOUT}),
        },
    ),
    ("inference.networking.k8s.io/v1", "InferencePool"): _object(
        {
            "selector": _object({"matchLabels": _LABELS}),
            "targetPorts": {"type": "array", "minItems": 1, "maxItems": 8, "items": _object({"number": _PORT})},
            "endpointPickerRef": _object(
                {"name": _NAME, "port": _object({"number": _PORT})},
                {"group": {"type": "string"}, "kind": _NAME, "failureMode": {"enum": ["FailOpen", "FailClose"]}},
            ),
        },
        {"appProtocol": {"enum": ["http", "kubernetes.io/h2c"]}},
    ),
    ("gateway.networking.k8s.io/v1", "GRPCRoute"): _route({}),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): _route({"timeouts": _TIMEOUTS}),
}


def is_custom(each: dict[str, Any]) -> bool:
    return each["kind"] in _MODELS or (each["apiVersion"], each["kind"]) in _SPECS


def check(each: dict[str, Any]) -> None:
    """Raises an error that names what is wrong with a custom resource."""
    if model := _MODELS.get(each["kind"]):
        # The models leave out what they do not know.
        known = model.model_validate(each).model_dump(by_alias=True, exclude_unset=True, mode="json")
        assert known == each, f"{each['kind']} has fields that its definition has not"
        return
    assert {*each} == {"apiVersion", "kind", "metadata", "spec"}
    jsonschema.validate(each["spec"], _SPECS[each["apiVersion"], each["kind"]])
