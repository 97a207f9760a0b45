"""What operators see of certificates and keys."""

from collections.abc import Mapping
from datetime import datetime

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily


def expiry_family(expires_at: datetime) -> GaugeMetricFamily:
    """When the certificate that new connections get ceases to be valid."""
    help_text = "When the server's certificate expires, in seconds since the epoch."
    return GaugeMetricFamily("sluicegate:tls_certificate_expiry_timestamp_seconds", help_text, expires_at.timestamp())


def callers_family(num_calls: Mapping[str, int]) -> CounterMetricFamily:
    """``num_calls`` by the name of the key."""
    family = CounterMetricFamily(
        "sluicegate:calls_by_key", "Calls let in, by the name of their key.", labels=["key_name"]
    )
    for name, count in num_calls.items():
        family.add_metric([name], count)
    return family
