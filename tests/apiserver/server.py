"""The API server's HTTP side."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import parse_qs, urlsplit

import orjson
from typing_extensions import override

from tests.apiserver.objects import RESOURCES, CompactedError, Objects, Resource, Selection, frame

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable
    from types import TracebackType

    from tests.apiserver.objects import Stored

_COLLECTIONS: Final = {resource.path: resource for resource in RESOURCES}


@dataclass(frozen=True, slots=True)
class Asked:
    """One request that came."""

    method: str
    path: str
    query: dict[str, str]

    @property
    def watch(self) -> bool:
        """Whether it asks for a watch."""
        return self.query.get("watch") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong with the next request that matches.

    Attributes:
        matches: which.
        status: answer with this status instead.
        message: of that status, or of the error.
        cut_after: bytes of a watch, or of a list's body, after which the connection is torn down.
        error: code of a Status that a watch sends as an event before it ends.
        body: what a list answers instead.
    """

    matches: Callable[[Asked], bool]
    status: int = 0
    cut_after: int | None = None
    error: int = 0
    body: bytes | None = None
    message: str = "as the test wants it"


class ApiServer:
    """Serves objects on a port of its own, from entering to leaving.

    Args:
        objects: what it serves.
        page: objects in a page at most, whatever the request allows; 0 for no limit.
        bookmark_seconds: between bookmarks of a watch that wants them.
        token: the bearer token that callers must show; empty asks for none.
        tls: None serves plain HTTP.
        port: to listen on; 0 for one that the system chooses.

    Attributes:
        asked: the requests that came, oldest first.
        faults: what is to go wrong, each once, in order.
        version: that it reports at /version, as "v1.37.2"; empty: it has no such path.
        forbidden: plurals of what nobody may list or watch.
    """

    def __init__(
        self,
        objects: Objects,
        *,
        page: int = 0,
        bookmark_seconds: float = 60.0,
        token: str = "",
        tls: ssl.SSLContext | None = None,
        port: int = 0,
    ) -> None:
        self.objects = objects
        self.page = page
        self.bookmark_seconds = bookmark_seconds
        self.token = token
        self.version = ""
        self.asked: list[Asked] = []
        self.faults: deque[Fault] = deque()
        self.forbidden: set[str] = set()
        self.pages: dict[str, tuple[int, list[Stored]]] = {}
        self.page_numbers = itertools.count(1)
        self.closing = False
        self.ended: Counter[str] = Counter()
        self._server = _Server(("127.0.0.1", port), _Handler)
        self._server.api = self
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.05,), name="api-server"
        )

    @property
    def url(self) -> str:
        """Where it serves."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}"

    def watches(self, plural: str) -> int:
        """How many watches of a kind were asked for."""
        return sum(asked.watch and asked.path.endswith(f"/{plural}") for asked in self.asked)

    def lists(self, plural: str) -> int:
        """How many pages of a kind were asked for."""
        return sum(not asked.watch and asked.path.endswith(f"/{plural}") for asked in self.asked)

    def next_fault(self, asked: Asked) -> Fault | None:
        """The fault that is meant for a request, once."""
        for fault in self.faults:
            if fault.matches(asked):
                self.faults.remove(fault)
                return fault
        return None

    def end_watches(self, *plurals: str) -> None:
        """End watches, of some kinds or all, in good order: as an API server that is going away."""
        with self.objects.changed:
            self.ended.update(plurals or [resource.plural for resource in RESOURCES])
            self.objects.changed.notify_all()

    def hang_up(self) -> None:
        """Tear down all connections, as a restart does."""
        self._server.hang_up()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # Nobody who loses a watch is answered any more.
        self._server.shutdown()
        self._server.server_close()
        self.closing = True
        with self.objects.changed:
            self.objects.changed.notify_all()
        self._server.hang_up()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    """Knows its connections, so that it can tear them down."""

    daemon_threads = True
    request_queue_size = 64
    api: ApiServer

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self._open: set[socket.socket] = set()

    @override
    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    @override
    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    @override
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log nothing about callers that went away."""

    def hang_up(self) -> None:
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Headers and body leave together.
    wbufsize = -1
    server: _Server

    @override
    def log_message(self, format: str, *args: Any) -> None:
        """Silence: who measures reads the terminal."""

    def do_GET(self) -> None:
        asked = self._asked()
        resource = _COLLECTIONS.get(asked.path)
        if asked.path == "/version" and self.server.api.version:
            self._answer(200, orjson.dumps({"gitVersion": self.server.api.version}))
        elif resource is None:
            self._status(404, "the server could not find the requested resource")
        elif self._may(asked):
            if asked.watch:
                self._watch(resource, asked)
            else:
                self._list(resource, asked)

    def do_POST(self) -> None:
        asked = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = asked.path.split("/")
        if not self._may(asked):
            return
        if len(parts) != 8 or parts[5] != "pods" or parts[7] != "binding":
            self._status(404, "the server could not find the requested resource")
            return
        self._bind(parts[4], parts[6], orjson.loads(body)["target"]["name"])

    def do_PATCH(self) -> None:
        asked = self._asked()
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        parts = asked.path.split("/")
        if not self._may(asked):
            return
        if len(parts) != 8 or parts[5] != "pods" or parts[7] != "status":
            self._status(404, "the server could not find the requested resource")
            return
        self._patch_status(parts[4], parts[6], orjson.loads(body))

    # ------------------------------ requests

    def _asked(self) -> Asked:
        split = urlsplit(self.path)
        query = {name: values[-1] for name, values in parse_qs(split.query).items()}
        asked = Asked(self.command, split.path, query)
        self.server.api.asked.append(asked)
        return asked

    def _may(self, asked: Asked) -> bool:
        """Answer what is not to be carried out."""
        token = self.server.api.token
        self._fault = self.server.api.next_fault(asked)
        if token and self.headers.get("Authorization", "").lower() != f"bearer {token}".lower():
            self._status(401, "Unauthorized")
        elif (plural := asked.path.rpartition("/")[2]) in self.server.api.forbidden:
            self._status(403, f"{plural} is forbidden", "Forbidden")
        elif self._fault is not None and self._fault.status:
            self._status(self._fault.status, self._fault.message)
        else:
            return True
        return False

    # ------------------------------ answers

    def _list(self, resource: Resource, asked: Asked) -> None:
        api = self.server.api
        limits = [limit for limit in (api.page, int(asked.query.get("limit", "0"))) if limit]
        token = asked.query.get("continue", "")
        if token:
            if token not in api.pages:
                self._status(410, "The provided continue parameter is too old", "Expired")
                return
            version, items = api.pages[token]
        else:
            selected = Selection(asked.query.get("fieldSelector", ""))
            with api.objects.changed:
                version = api.objects.version
                items = [one for one in api.objects.all(resource.plural) if selected(one.manifest)]
        page, rest = (items[: min(limits)], items[min(limits) :]) if limits else (items, [])
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if rest:
            meta["continue"] = f"page-{next(api.page_numbers)}"
            meta["remainingItemCount"] = len(rest)
            api.pages[meta["continue"]] = (version, rest)
        head = {"kind": f"{resource.kind}List", "apiVersion": resource.group, "metadata": meta}
        joined = b",".join(one.encoded for one in page)
        body = orjson.dumps(head)[:-1] + b',"items":[' + joined + b"]}"
        if self._fault is not None and self._fault.body is not None:
            body = self._fault.body
        self._answer(200, body, None if self._fault is None else self._fault.cut_after)

    def _watch(self, resource: Resource, asked: Asked) -> None:
        """Send what comes after a version; as the real one, also after one of the future."""
        api = self.server.api
        selected = Selection(asked.query.get("fieldSelector", ""))
        version = int(asked.query.get("resourceVersion", "0"))
        ends = time.monotonic() + float(asked.query.get("timeoutSeconds", "3600"))
        marks = asked.query.get("allowWatchBookmarks") == "true"
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        stream = _Stream(self, self._fault)
        if self._fault is not None and self._fault.error:
            stream.send(_event("ERROR", _failure(self._fault.error, self._fault.message)))
            stream.end()
            return
        marked, ended = time.monotonic(), api.ended[resource.plural]
        while not api.closing and time.monotonic() < ends:
            if api.ended[resource.plural] != ended:
                break
            with api.objects.changed:
                try:
                    events = api.objects.after(version, resource.plural)
                except CompactedError:
                    stream.send(_event("ERROR", _failure(410, "too old resource version")))
                    break
                newest = api.objects.version
                if not events and time.monotonic() - marked < api.bookmark_seconds:
                    left = min(ends, marked + api.bookmark_seconds) - time.monotonic()
                    api.objects.changed.wait(max(0.0, left))
                    continue
            stream.send(b"".join(frame(event, selected) for event in events))
            if time.monotonic() - marked >= api.bookmark_seconds:
                if marks and newest >= version:
                    mark = {"kind": resource.kind, "metadata": {"resourceVersion": str(newest)}}
                    stream.send(_event("BOOKMARK", mark))
                marked = time.monotonic()
            # A version that is not reached yet is waited for without a word.
            version = max(version, newest)
        stream.end()

    def _bind(self, namespace: str, name: str, node: str) -> None:
        api = self.server.api

        def assign(manifest: dict[str, Any]) -> None:
            if manifest.get("spec", {}).get("nodeName"):
                raise ValueError(f'pod {name} is already assigned to node "{node}"')
            manifest.setdefault("spec", {})["nodeName"] = node

        try:
            api.objects.change("Pod", namespace, name, assign)
        except KeyError:
            self._status(404, f'pods "{name}" not found')
        except ValueError as refused:
            self._status(409, str(refused), "Conflict")
        else:
            self._answer(201, b'{"kind":"Status","apiVersion":"v1","status":"Success"}')

    def _patch_status(self, namespace: str, name: str, patch: dict[str, Any]) -> None:
        """A strategic merge, of which only conditions are known: they are merged by their type."""
        api = self.server.api

        def merge(manifest: dict[str, Any]) -> None:
            wanted = patch.get("metadata", {}).get("uid", manifest["metadata"]["uid"])
            if wanted != manifest["metadata"]["uid"]:
                raise ValueError(f"Precondition failed: UID in precondition: {wanted}")
            status = manifest.setdefault("status", {})
            conditions = {one["type"]: one for one in status.get("conditions") or ()}
            for one in patch["status"]["conditions"]:
                conditions[one["type"]] = {**conditions.get(one["type"], {}), **one}
            status["conditions"] = list(conditions.values())

        try:
            api.objects.change("Pod", namespace, name, merge)
        except KeyError:
            self._status(404, f'pods "{name}" not found')
        except ValueError as refused:
            self._status(409, str(refused), "Conflict")
        else:
            self._answer(200, orjson.dumps(api.objects.get("Pod", namespace, name)))

    def _status(self, code: int, message: str, reason: str = "") -> None:
        self._answer(code, orjson.dumps(_failure(code, message, reason)))

    def _answer(self, code: int, body: bytes, cut_after: int | None = None) -> None:
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[:cut_after])
        self.wfile.flush()
        if cut_after is not None:
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True


class _Stream:
    """The chunks of one watch."""

    def __init__(self, handler: _Handler, fault: Fault | None) -> None:
        self._handler = handler
        self._left = None if fault is None else fault.cut_after

    def send(self, content: bytes) -> None:
        if not content:
            return
        cut = self._left is not None and self._left < len(content)
        if cut:
            content = content[: self._left]
        elif self._left is not None:
            self._left -= len(content)
        self._handler.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
        self._handler.wfile.flush()
        if cut:
            self._handler.connection.shutdown(socket.SHUT_RDWR)
            raise ConnectionAbortedError("as the test wants it")

    def end(self) -> None:
        self._handler.wfile.write(b"0\r\n\r\n")
        self._handler.wfile.flush()


def _event(kind: str, content: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": kind, "object": content}) + b"\n"


def _failure(code: int, message: str, reason: str = "") -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": message,
        "reason": reason or ("Expired" if code == 410 else "InternalError"),
        "code": code,
    }
