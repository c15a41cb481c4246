"""The SDK's store of push configurations over those in the bucket."""

from __future__ import annotations

from collections.abc import Callable

from a2a.server.context import ServerCallContext
from a2a.server.tasks import PushNotificationConfigStore
from a2a.server.tasks.push_notification_config_store import normalize_push_notification_config
from a2a.types.a2a_pb2 import AuthenticationInfo, TaskPushNotificationConfig
from a2a.utils.errors import InvalidParamsError, TaskNotFoundError

from a2a_gcs.claims import ClaimTable
from a2a_gcs.host.versions import is_03
from a2a_gcs.layout import TaskRef
from a2a_gcs.records import PushConfigRecord
from a2a_gcs.task_records import TaskRecords
from a2a_gcs.tasks.push_configs import PushConfigs

_MOST_CHARACTERS = 4096
"""Of a URL, token, scheme or credentials: servers refuse longer lines."""


class BucketPushConfigStore(PushNotificationConfigStore):
    """Configurations of the tasks below one root; whose they are is the root's, so callers are not looked at.

    Args:
        configs: Where they are.
        records: The tasks' pointers.
        table: What runs here.
        look_at: Called with a task that has got a configuration.
    """

    def __init__(
        self, configs: PushConfigs, records: TaskRecords, table: ClaimTable, look_at: Callable[[TaskRef], None]
    ) -> None:
        self._configs = configs
        self._records = records
        self._table = table
        self._look_at = look_at

    async def set_info(
        self, task_id: str, notification_config: TaskPushNotificationConfig, context: ServerCallContext
    ) -> TaskPushNotificationConfig:
        """Stores a configuration; one without an id gets the task's. Its URL has been checked before.

        Raises:
            TaskNotFoundError: There is no such task.
            InvalidParamsError: It cannot be sent in headers.
            A2AGcsError: As `PushConfigs.register`.
        """
        config = normalize_push_notification_config(task_id, notification_config)
        _check_headers(config)
        claim = self._table.get(task_id)
        ref = claim.ref if claim is not None else await self._ref(task_id)
        await self._configs.register(ref, _stored(config, context))
        if claim is None or claim.started:  # else its first save leads here
            self._look_at(ref)
        return config

    async def get_info(self, task_id: str, context: ServerCallContext) -> list[TaskPushNotificationConfig]:
        """The configurations of a task."""
        del context
        return [_shown(config, task_id) for config in await self._configs.all(await self._ref(task_id))]

    async def get_info_for_dispatch(self, task_id: str) -> list[TaskPushNotificationConfig]:
        """As `get_info`: a root has one owner. Deliveries do not come through here."""
        return await self.get_info(task_id, ServerCallContext())

    async def delete_info(self, task_id: str, context: ServerCallContext, config_id: str | None = None) -> None:
        """Removes a configuration; without an id, the one that was stored without one."""
        del context
        await self._configs.delete(await self._ref(task_id), config_id or task_id)

    async def _ref(self, task_id: str) -> TaskRef:
        context_id = await self._records.context_of(task_id)
        if context_id is None:
            raise TaskNotFoundError
        return TaskRef(context_id, task_id)


def _check_headers(config: TaskPushNotificationConfig) -> None:
    auth = config.authentication
    named = {"token": config.token, "authentication scheme": auth.scheme, "credentials": auth.credentials}
    if len(config.url) > _MOST_CHARACTERS:
        raise InvalidParamsError(f"the push configuration's URL is longer than {_MOST_CHARACTERS} characters")
    for name, value in named.items():
        if len(value) > _MOST_CHARACTERS or not value.isascii() or not value.isprintable():
            raise InvalidParamsError(
                f"the push configuration's {name} has to be printable ASCII of at most {_MOST_CHARACTERS} characters, "
                "as it is sent in a header"
            )
    if auth.scheme.strip() != auth.scheme or " " in auth.scheme:
        raise InvalidParamsError("the push configuration's authentication scheme has to be one word, such as Bearer")


def _stored(config: TaskPushNotificationConfig, context: ServerCallContext) -> PushConfigRecord:
    return PushConfigRecord(
        id=config.id,
        url=config.url,
        token=config.token,
        scheme=config.authentication.scheme,
        credentials=config.authentication.credentials,
        protocol="0.3" if is_03(context) else "1.0",
    )


def _shown(config: PushConfigRecord, task_id: str) -> TaskPushNotificationConfig:
    shown = TaskPushNotificationConfig(task_id=task_id, id=config.id, url=config.url, token=config.token)
    if config.scheme or config.credentials:
        shown.authentication.CopyFrom(AuthenticationInfo(scheme=config.scheme, credentials=config.credentials))
    return shown
