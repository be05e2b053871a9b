"""The Python client of a broker service (`sapwood serve`).

    with Client("http://127.0.0.1:8080", key="sw_…") as client:
        client.subscribe("oil", "//hl1[contains(., 'Oil')]", subscriber="desk")
        client.publish("news", "<nitf>…</nitf>")
        for delivery in client.deliveries("desk"):
            print(delivery.body)

`AsyncClient` has the same methods for asyncio. It needs the extra `client`.
"""

from sapwood.client.async_client import AsyncClient
from sapwood.client.async_deliveries import AsyncDeliveries
from sapwood.client.client_errors import (
    ClientError,
    Conflict,
    Forbidden,
    InvalidRequest,
    NotFound,
    Overloaded,
    PreconditionFailed,
    ProtocolError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from sapwood.client.model.delivery import Acknowledgement, Delivery, DeliveryPage, Gap
from sapwood.client.model.messages import Message, PublishReceipt, Refusal
from sapwood.client.model.resources import (
    DeadLetter,
    ImportFailure,
    ImportReport,
    Key,
    NewSubscription,
    QueryExplanation,
    ReplayReport,
    Subscriber,
    SubscriberSettings,
    Subscription,
    Trial,
)
from sapwood.client.sync_client import Client
from sapwood.client.sync_deliveries import Deliveries
from sapwood.client.transport.retry_policy import RetryPolicy

__all__ = [
    "Acknowledgement",
    "AsyncClient",
    "AsyncDeliveries",
    "Client",
    "ClientError",
    "Conflict",
    "DeadLetter",
    "Deliveries",
    "Delivery",
    "DeliveryPage",
    "Forbidden",
    "Gap",
    "ImportFailure",
    "ImportReport",
    "InvalidRequest",
    "Key",
    "Message",
    "NewSubscription",
    "NotFound",
    "Overloaded",
    "PreconditionFailed",
    "ProtocolError",
    "PublishReceipt",
    "QueryExplanation",
    "Refusal",
    "ReplayReport",
    "RetryPolicy",
    "Subscriber",
    "SubscriberSettings",
    "Subscription",
    "TooLarge",
    "Trial",
    "Unauthorized",
    "Unavailable",
]
