"""A client of a cluster's API server, configured by a kubeconfig or the pod's service account.

The official client has the server's address and the credentials (certificates, tokens that are
read again, exec plugins). Its typed API is not used, because making its models of a large list
costs many times what reading the JSON does.
"""

from __future__ import annotations

import logging
import math
import re
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, TypeGuard
from urllib.parse import urlencode

import orjson

from topospread.errors import (
    ClusterUnavailable,
    ConfigError,
    NotFound,
    RevisionCompacted,
    RevisionUnavailable,
    TooLarge,
)
from topospread.kube.versions import parse_version
from topospread.kubernetes.kubeconfig import NO_HEADER, configure, is_header

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

    from urllib3.response import BaseHTTPResponse

    from topospread.kube.versions import KubernetesVersion

LOG: Final = logging.getLogger(__name__)

GONE: Final = 410

_AHEAD: Final = "Too large resource version"
"""The API server's message for a version that it has not reached: it was restored from a backup."""

CONNECT_SECONDS: Final = 10.0
LIST_SECONDS: Final = 60.0
"""How long the API server may be silent while it makes one page of a list; its own limit."""

PATCH_SECONDS: Final = 5.0

CONNECTIONS: Final = 32

REMINDER_SECONDS: Final = 60.0
"""Between log lines that say that the API server is out of reach."""

_CHUNK: Final = 1 << 16

_OF_URLLIB3: Final = re.compile(r"(?:<[^<>]*>|\b\w+\(host=[^()]*\)): |\[Errno -?\d+\] ")
"""What urllib3's messages have of its own objects, and of the system's numbers."""


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """The kubeconfig and context by which the API server is found.

    Attributes:
        kubeconfig: a file; empty: $KUBECONFIG or ~/.kube/config if there is one, else the service
            account of the pod that this process runs in.
        context: of the kubeconfig; empty: its current one.
        most_bytes: of all lists together; 0: as many as come.
    """

    kubeconfig: str = ""
    context: str = ""
    most_bytes: int = 0


class NoResponse(ClusterUnavailable):
    """The API server sent no complete response.

    Attributes:
        logged: the outage that it is a part of was logged.
    """

    logged = False


class Refusal(ClusterUnavailable):
    """The API server answered, and refused.

    Attributes:
        status: of the response.
        server_message: what it says.
    """

    def __init__(self, message: str, status: int, server_message: str) -> None:
        super().__init__(message)
        self.status = status
        self.server_message = server_message


class Reachability:
    """Whether the API server can be reached: logged when that changes, and as a reminder.

    All reflectors share one, so that an outage is one line.
    """

    def __init__(self, address: str) -> None:
        self._address = address
        self._lock = threading.Lock()
        self._lost_at: float | None = None
        self._logged_at = -math.inf

    def failed(self, error: NoResponse) -> None:
        """Note that a request had no response."""
        now = time.monotonic()
        with self._lock:
            if self._lost_at is None:
                self._lost_at = now
            if now - self._logged_at < REMINDER_SECONDS:
                return
            self._logged_at = now
            seconds = now - self._lost_at
        lasted = f" (for {seconds:.0f} s by now)" if seconds >= 1.0 else ""
        LOG.warning("API server %s is out of reach%s: %s", self._address, lasted, error)

    def succeeded(self) -> None:
        """Note that a request had a response, whatever its status."""
        with self._lock:
            lost_at, self._lost_at = self._lost_at, None
            # The end of an outage is logged if the outage was.
            if lost_at is None or self._logged_at < lost_at:
                return
        LOG.info(
            "API server %s is reachable again after %.1f s",
            self._address,
            time.monotonic() - lost_at,
        )


@cache
def _warn_of_unverified(address: str) -> None:
    """Warn once in a process, in the log; urllib3 would print two lines for each request."""
    from urllib3 import disable_warnings
    from urllib3.exceptions import InsecureRequestWarning

    disable_warnings(InsecureRequestWarning)
    LOG.warning(
        "API server %s: its certificate is not verified (insecure-skip-tls-verify)", address
    )


class ApiServer:
    """One API server. Methods may be called from any thread.

    Raises:
        ConfigError: the kubeconfig or the service account cannot be used.
    """

    def __init__(self, access: ClusterAccess) -> None:
        from kubernetes.client import ApiClient, Configuration

        # Parts of the client have no types.
        self._configuration: Any = Configuration()
        configure(self._configuration, access.kubeconfig, access.context)
        # A peer that vanished is noticed although nothing is sent.
        self._configuration.keep_alive = True
        # One for each kind that is watched, and for who lists or patches beside them.
        self._configuration.connection_pool_maxsize = CONNECTIONS
        # Callers retry by themselves, and urllib3 would log each of its own attempts.
        self._configuration.retries = False
        self._client: Any = ApiClient(self._configuration)
        self.address: str = self._configuration.host
        if self.address.startswith("https:") and not self._configuration.verify_ssl:
            _warn_of_unverified(self.address)
        self._reachability = Reachability(self.address)
        self._most_bytes = access.most_bytes
        self._listed_bytes = 0

    def list_page(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """One page of a list.

        Raises:
            RevisionUnavailable: the page was requested too late (410): list from the beginning.
            ClusterUnavailable: no answer, or a refusal.
            TooLarge: all lists together have more bytes than are read.
        """
        response = self._get(path, query, LIST_SECONDS)
        with self._noting_reachability(), _failures(path):
            content = self._content(path, response)
        try:
            answer = orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise ClusterUnavailable(f"{path}: the answer is no JSON: {error}") from error
        if not _is_list(answer):
            raise ClusterUnavailable(f"{path}: the answer is no list of Kubernetes objects")
        return answer

    def kubernetes_version(self) -> KubernetesVersion | None:
        """The version that it reports; None where it reports none that can be read.

        Raises:
            ClusterUnavailable: no answer.
        """
        path = "/version"
        try:
            response = self._get(path, {}, LIST_SECONDS)
            with self._noting_reachability(), _failures(path):
                answer = orjson.loads(response.data)
        except (Refusal, orjson.JSONDecodeError) as error:
            LOG.debug("API server %s reports no version: %s", self.address, error)
            return None
        version = answer.get("gitVersion") if isinstance(answer, dict) else None
        return parse_version(version) if isinstance(version, str) else None

    def _content(self, path: str, response: BaseHTTPResponse) -> bytes:
        if not self._most_bytes:
            return response.data
        chunks: list[bytes] = []
        for chunk in response.stream(_CHUNK):
            chunks.append(chunk)
            self._listed_bytes += len(chunk)
            if self._listed_bytes > self._most_bytes:
                response.close()
                most = self._most_bytes
                text = f"{path}: the lists of this cluster have more than {most >> 20} MiB of JSON"
                raise TooLarge(text, "lists", most)
        return b"".join(chunks)

    def watch(self, path: str, query: Mapping[str, str], silence: float) -> WatchStream:
        """The events of a watch as they come.

        Args:
            path: of the collection.
            query: with ``watch`` and the resourceVersion to go on from.
            silence: seconds without a byte after which the connection counts as lost.

        Raises:
            RevisionUnavailable: events that old are compacted (410): list again.
            ClusterUnavailable: no answer, or a refusal; iterating raises it as well.
        """
        return WatchStream(path, self._get(path, query, silence))

    def patch(self, path: str, change: Mapping[str, object]) -> None:
        """Change an object with a strategic merge patch.

        Raises:
            NotFound: there is no such object, or the uid of the change is not its own.
            ClusterUnavailable: no answer, or a refusal.
        """
        response = self._request(path, {}, PATCH_SECONDS, change)
        with self._noting_reachability(), _failures(path):
            content = response.data
        if 200 <= response.status < 300:
            return
        text = _status_text(content)
        if response.status in (404, 409):
            raise NotFound(f"{path}: {text}")
        advice = {403: ": allow patch of pods/status with RBAC (deploy/kubernetes/waking)"}
        raise ClusterUnavailable(
            f"{path}: the API server answers {response.status} {text}"
            + advice.get(response.status, "")
        )

    def close(self) -> None:
        """Close all connections that are not in use."""
        self._client.rest_client.close()

    def _get(self, path: str, query: Mapping[str, str], silence: float) -> BaseHTTPResponse:
        return self._checked(path, self._request(path, query, silence))

    def _request(
        self,
        path: str,
        query: Mapping[str, str],
        silence: float,
        patch: Mapping[str, object] | None = None,
    ) -> BaseHTTPResponse:
        method = "GET" if patch is None else "PATCH"
        headers = {"Accept": "application/json", "User-Agent": "topospread"}
        if patch is not None:
            headers["Content-Type"] = "application/strategic-merge-patch+json"
        url = f"{self.address}{path}" + (f"?{urlencode(query)}" if query else "")
        timeout = (CONNECT_SECONDS, silence)
        with self._noting_reachability(), _failures(path):
            # Asked for anew each time: tokens change while we run.
            for setting in self._configuration.auth_settings().values():
                if setting["in"] == "header" and setting["value"]:
                    if not is_header(setting["value"]):
                        raise NoResponse(f"{path}: cannot ask the API server: {NO_HEADER}")
                    headers[setting["key"]] = setting["value"]
            made = self._client.rest_client.request(
                method, url, headers=headers, body=patch, _request_timeout=timeout
            )
        self._reachability.succeeded()
        response: BaseHTTPResponse = made.response
        return response

    @contextmanager
    def _noting_reachability(self) -> Generator[None]:
        """Log that no answer came, if it is to be logged."""
        try:
            yield
        except NoResponse as error:
            self._reachability.failed(error)
            error.logged = True
            raise

    def _checked(self, path: str, response: BaseHTTPResponse) -> BaseHTTPResponse:
        if 200 <= response.status < 300:
            return response
        with _failures(path):
            content = response.read(_CHUNK)
        response.close()
        raise failure(path, response.status, _status_text(content))


class WatchStream:
    """The lines of a response as they come. What follows the last line end is dropped with it."""

    def __init__(self, path: str, response: BaseHTTPResponse) -> None:
        self._path = path
        self._response = response
        self._lock = threading.Lock()
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        rest = b""
        try:
            with _failures(self._path):
                for chunk in self._response.stream(_CHUNK):
                    *lines, rest = (rest + chunk).split(b"\n")
                    yield from lines
        finally:
            self._response.close()

    def close(self) -> None:
        """End the stream, from any thread."""
        with self._lock:
            if not self._closed and not self._response.closed:
                # Closing alone does not wake the thread that waits for the next chunk.
                self._response.shutdown()
            self._closed = True


def _is_list(answer: Any) -> TypeGuard[dict[str, Any]]:
    """Whether this is a page of a list: what says less is not taken for one that has no objects."""
    if not isinstance(answer, dict) or not str(answer.get("kind", "List")).endswith("List"):
        return False
    metadata = answer.get("metadata")
    # Without a version, whatever is stored would count as older than the list.
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version:
        return False
    # Go writes a list of nothing as null.
    return "items" in answer and isinstance(answer["items"], list | None)


def failure(path: str, code: int, text: str) -> ClusterUnavailable | RevisionUnavailable:
    """The error for a status of the API server."""
    if code == GONE or _AHEAD in text:
        return RevisionCompacted(f"{path}: {text or 'gone'}")
    advice = {
        401: ": who we are is not known there: check the kubeconfig or the service account",
        403: ": allow list and watch with RBAC (deploy/ has a ClusterRole for it)",
    }.get(code, "")
    return Refusal(f"{path}: the API server answers {code} {text}{advice}", code, text)


@contextmanager
def _failures(path: str) -> Generator[None]:
    from kubernetes.client.exceptions import ApiException
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except HTTPError as error:
        text = _OF_URLLIB3.sub("", str(error))
        raise NoResponse(f"{path}: the API server is out of reach: {text}") from error
    except (ApiException, ConfigException, OSError) as error:
        # Bad certificates; a program that makes tokens and failed.
        raise NoResponse(f"{path}: cannot ask the API server: {error}") from error


def _status_text(content: bytes) -> str:
    """The message of a Status; anything else that came, shortened."""
    try:
        status = orjson.loads(content)
    except orjson.JSONDecodeError:
        status = None
    if isinstance(status, dict) and isinstance(status.get("message"), str):
        return str(status["message"])
    return content[:200].decode(errors="replace").strip()


def open_api_server(access: ClusterAccess) -> ApiServer:
    """The API server that a cluster is read from.

    Raises:
        ConfigError: it cannot be found, or the client is not installed.
    """
    if find_spec("kubernetes") is None:
        raise ConfigError("this needs the Kubernetes client: pip install 'topospread[sync]'")
    return ApiServer(access)
