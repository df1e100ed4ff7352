"""Facts as the facts topic holds them."""

from __future__ import annotations

from hub_app.domain.fact import Fact


def fact(
    seq: int,
    tenant: str = "t",
    *,
    source: str = "lender",
    event_type: str = "loan.approved",
    value: bytes = b"{}",
    content_type: str = "application/json",
    received_at_ms: int = 1_767_323_045_678,
    **attributes: str,
) -> Fact:
    resource, _, event = event_type.partition(".")
    type = f"studio.lerian.{source}.{event_type}"
    ce = {
        "specversion": "1.0",
        "id": f"id-{seq}",
        "source": source,
        "type": type,
        "time": "2026-01-02T03:04:05.123456789+02:00",
        "schemaversion": "1.0.0",
        "resourcetype": resource,
        "eventtype": event,
        "tenantid": tenant,
        "datacontenttype": content_type,
        **attributes,
    }
    headers = tuple((f"ce-{name}", text.encode()) for name, text in ce.items())
    return Fact(seq, tenant, source, source, f"id-{seq}", type, event_type, headers, value, received_at_ms)
