"""The public clients of Event Grid, pointed at a hub."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from azure.core.credentials import AzureKeyCredential
from azure.eventgrid import EventGridConsumerClient, EventGridPublisherClient
from azure.eventgrid.aio import EventGridConsumerClient as AioConsumer
from azure.eventgrid.aio import EventGridPublisherClient as AioPublisher


def endpoint(url: str, tenant: str) -> str:
    return f"{url}/t/{quote(tenant, safe='')}"


def consumer(url: str, tenant: str, key: str, topic: str, name: str, *, aio: bool = False, **options: Any) -> Any:
    made = AioConsumer if aio else EventGridConsumerClient
    return made(
        endpoint(url, tenant),
        AzureKeyCredential(key),
        namespace_topic=topic,
        subscription=name,
        **options,
    )


def publisher(url: str, tenant: str, key: str, topic: str, *, aio: bool = False, **options: Any) -> Any:
    made = AioPublisher if aio else EventGridPublisherClient
    return made(endpoint(url, tenant), AzureKeyCredential(key), namespace_topic=topic, **options)


def queue(topic: str, name: str, **sink: Any) -> dict[str, Any]:
    """A wish for `POST /v1/subscriptions`."""
    return {"name": name, "event_types": ["*"], "sink": {"type": "queue", "topic": topic, "name": name, **sink}}
