"""The service: the engine, the feed, keys, webhooks and metrics together."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from sqlalchemy import select

from sapwood.errors import SapwoodError
from sapwood.lang.literals.durations import parse_duration
from sapwood.serve.auth.api_keys import KeyRing, KeyStore
from sapwood.serve.auth.rate_limit import PublishRates
from sapwood.serve.config import ServerConfig
from sapwood.serve.delivery.delivery_feed import DeliveryFeed
from sapwood.serve.delivery.inbox_reader import InboxReader
from sapwood.serve.delivery.subscription_names import SubscriptionNames
from sapwood.serve.engine.engine_client import EngineClient
from sapwood.serve.engine.engine_spawn import SpawnedEngine
from sapwood.serve.engine.frames import Acknowledge, Committed, ConfigureInbox, EngineStatus, Publish, Started
from sapwood.serve.log import log_schema
from sapwood.serve.log.log_database import open_log
from sapwood.serve.log.log_reader import LogReader
from sapwood.serve.mesh.mesh_frames import MeshOutput, MeshStatus
from sapwood.serve.metrics import Metrics, StatusCollector
from sapwood.serve.webhooks.inbox_webhook import InboxWebhook
from sapwood.serve.webhooks.target_address import TargetPolicy
from sapwood.serve.webhooks.webhook_manager import WebhookManager
from sapwood.serve.webhooks.webhook_settings import WebhookSettings
from sapwood.store import SubscriptionStore
from sapwood.store.database import Database

if TYPE_CHECKING:
    from sapwood.serve.mesh.mesh_config import MeshConfig
    from sapwood.serve.mesh.mesh_service import MeshService

_log = logging.getLogger(__name__)


class Overloaded(SapwoodError):
    """Raised for a request that has to be repeated later."""


class Service:
    """All that the routes of the API need; lives as long as the server."""

    def __init__(self, config: ServerConfig, spawned: SpawnedEngine | None = None) -> None:
        """Use an engine that was started with these settings, or start one."""
        self.config = config
        self.log = open_log(config.log.location)
        location = config.store.location or config.log.location
        SubscriptionStore(location).close()  # which creates its tables
        self._store_location = location
        self._stores: dict[str, SubscriptionStore] = {}
        self.store_database = Database(location, create=False)
        self.reader = LogReader(self.log)
        names = SubscriptionNames(self.store_database)
        self.feed = DeliveryFeed(self.reader, names, config.overload.cache)
        self.names = names
        self.keys = KeyStore(self.log)
        self.key_ring = KeyRing(self.keys)
        self.rates = PublishRates(lambda tenant: config.quota_of(tenant).publish_rate)
        self.metrics = Metrics()
        policy = TargetPolicy(allow_private=config.webhooks.allow_private, allowed=config.webhooks.allowed)
        self.webhooks = WebhookManager(policy)
        self.engine = EngineClient(config.engine_settings(), self, spawned)
        self.mesh: MeshService | None = None
        if config.mesh is not None:
            self.mesh = self._open_mesh(config.mesh)
        self.status = StatusCollector(self.feed, self.webhooks.counters)
        self.metrics.registry.register(self.status)
        self.feed.on_inboxes = self._update_webhooks
        self._pending = 0
        self.is_stopping = False
        self.stopping = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def _open_mesh(self, config: MeshConfig) -> MeshService:
        config.transport_settings()  # which tells what is not installed
        from sapwood.serve.mesh.administration.broker_answers import BrokerAnswers
        from sapwood.serve.mesh.administration.broker_drain import BrokerDrain
        from sapwood.serve.mesh.administration.mesh_metrics import MeshCollector
        from sapwood.serve.mesh.administration.subscription_host import SubscriptionHost
        from sapwood.serve.mesh.mesh_service import MeshService

        with self.log.reading() as connection:
            identity = connection.execute(select(log_schema.state.c.identity)).scalar_one()
        mesh = MeshService(config, self.engine, identity)
        answers = BrokerAnswers(self, mesh)
        answers.register()
        SubscriptionHost(self, mesh).register()
        BrokerDrain(mesh, answers).register()
        self.metrics.registry.register(MeshCollector(mesh.read_metrics))
        return mesh

    # -- start and end ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine; raises the error for which it cannot."""
        await asyncio.to_thread(self.key_ring.refresh)
        await self.engine.start()
        if self.mesh is not None:
            await self.mesh.start()

    def begin_stop(self) -> None:
        """Take no more messages, and let listeners end."""
        self.is_stopping = True
        self.stopping.set()
        self.feed.stop()

    async def stop(self) -> None:
        """End webhooks, and let the engine finish."""
        self.begin_stop()
        await self.webhooks.close()
        if self.mesh is not None:
            await self.mesh.stop()
        await self.engine.stop()
        for store in self._stores.values():
            store.close()
        self.store_database.close()
        self.log.close()

    @property
    def problem(self) -> str | None:
        """Why messages cannot be published at present."""
        if self.is_stopping:
            return "the server is stopping"
        if not self.engine.is_ready:
            return "the engine is starting"
        if self.mesh is not None and self.mesh.is_draining:
            return "this broker is drained, to leave the mesh: publish at another one"
        return self.engine.log_problem

    def store(self, tenant: str) -> SubscriptionStore:
        """Return the store of a tenant, for reading; the engine makes the changes."""
        found = self._stores.get(tenant)
        if found is None:
            found = self._stores[tenant] = SubscriptionStore(self._store_location, tenant=tenant)
        return found

    # -- overload --------------------------------------------------------------------------------------

    @property
    def publish_wait(self) -> float:
        """The seconds that a publisher waits for the log."""
        return parse_duration(self.config.overload.publish_wait)

    def reserve(self, size: int) -> None:
        """Count bytes of messages that are not in the log yet; raises Overloaded if there are too many."""
        if size > 0 and self._pending and self._pending + size > self.config.overload.pending_bytes:
            self.metrics.refusals.labels("overload").inc()
            raise Overloaded("the server has as much to do as it can; try again in a moment")
        self._pending += size
        self.metrics.pending_bytes.set(self._pending)

    def release(self, size: int) -> None:
        """Count bytes that are not pending any more."""
        self._pending -= size
        self.metrics.pending_bytes.set(self._pending)

    # -- what the engine says --------------------------------------------------------------------------

    def on_started(self, event: Started) -> None:
        """Begin with the state of the log."""
        self.status.restarts = self.engine.restarts
        self.feed.restart(event)

    def on_committed(self, event: Committed, publications: Callable[[int], Publish | None]) -> None:
        """Take over a transaction of the log."""
        self.feed.add(event, publications)

    def on_ready(self) -> None:
        """Give the engine what it has to know of the mesh."""
        if self.mesh is not None:
            self.mesh.on_started()

    def on_status(self, event: EngineStatus) -> None:
        """Keep what the engine reports."""
        self.status.status = event

    def on_mesh(self, event: MeshOutput | MeshStatus) -> None:
        """Take what the node of the mesh sends, or reports."""
        if self.mesh is None:
            return
        if isinstance(event, MeshOutput):
            self.mesh.on_output(event)
        else:
            self.mesh.on_status(event)

    async def wait_confirmed(self, version: int) -> bool | None:
        """Wait until all brokers of the mesh have the subscriptions of a version; return whether they have
        in time, None without a mesh."""
        return await self.mesh.wait_confirmed(version) if self.mesh is not None else None

    # -- inboxes ---------------------------------------------------------------------------------------

    def find_inbox(self, tenant: str, subscriber: str) -> int | None:
        """Return the number of a subscriber's inbox."""
        return self.feed.inboxes.find(tenant, subscriber)

    async def acknowledge(self, inbox: int, upto: int) -> int | None:
        """Acknowledge deliveries; returns the last that is, or None if the inbox is gone."""
        result: int | None = await self.engine.request(lambda n: Acknowledge(n, inbox, upto))
        return result

    def open_reader(self, inbox: int, after: int | None = None) -> InboxReader:
        """Return a reader of an inbox."""
        return InboxReader(self.feed, inbox, after)

    async def configure(
        self, tenant: str, subscriber: str, settings: dict[str, Any] | None, resume: bool = False
    ) -> int:
        """Set the settings of an inbox, which is created if it is absent; returns its number."""
        text = json.dumps(settings) if settings is not None else None
        number: int = await self.engine.request(lambda n: ConfigureInbox(n, tenant, subscriber, text, resume))
        return number

    def _update_webhooks(self, numbers: Iterable[int]) -> None:
        """Start, change and end the webhooks of inboxes whose settings may have changed."""
        inboxes = self.feed.inboxes
        for number in numbers:
            name = f"inbox {number}"
            exists = number in inboxes.names
            settings = inboxes.get_setting(number, "webhook") if exists else None
            if settings and not inboxes.get_setting(number, "webhook_disabled"):
                try:
                    wanted = WebhookSettings.model_validate(settings)
                except ValidationError as error:
                    _log.error("the webhook of inbox %d cannot be used: %s", number, error)
                    continue
                self.webhooks.put(name, wanted, InboxWebhook(self, number))
            elif self.webhooks.status(name) is not None:
                task = asyncio.get_running_loop().create_task(self.webhooks.remove(name))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
