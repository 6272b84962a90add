"""Opens the store that an address names; nothing else names a backend."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.model import StoreSettings
from topospread.store.urls import SqliteURL, parse_store_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.store.api import Store
    from topospread.store.urls import StoreURL

LOG: Final = logging.getLogger(__name__)


def open_store(address: str, environ: Mapping[str, str], wait_replicas: int = 0) -> Store:
    """Open the store that an address names.

    Raises:
        ConfigError: the address cannot be used, or the store must not be.
        StoreUnavailable: it is out of reach; names its address, without user and password.
    """
    url = parse_store_url(address, environ)
    try:
        return _opened(url, wait_replicas)
    except StoreUnavailable as error:
        raise StoreUnavailable(f"store {url.address}: {error}") from error


def _opened(url: StoreURL, wait_replicas: int) -> Store:
    # Only the one that is used: Redis' driver alone takes a third of a server's start.
    if isinstance(url, SqliteURL):
        from topospread.store.sqlite.store import open_store as open_sqlite

        if wait_replicas:
            raise ConfigError("--wait-replicas: only Redis has replicas: leave it out, or name one")
        return open_sqlite(url)
    from topospread.store.redis.open import open_store as open_redis

    store = open_redis(url, StoreSettings(wait_replicas=wait_replicas))
    for warning in store.warnings:
        LOG.warning("store %s: %s", store.address, warning)
    return store
