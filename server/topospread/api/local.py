"""The API of one cluster in this process: an index and a dict of its objects, and nothing else.

It answers each method that reads as a server does that has the same objects. No thread is started
and nothing is written down; what changes comes by :meth:`LocalApi.apply`.
"""

from __future__ import annotations

import time
from random import getrandbits
from typing import TYPE_CHECKING, Any, Final

from google.protobuf import descriptor_pool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from topospread.api.api import ApiMethods, UseCases
from topospread.cache import GROUP_BYTES, Budget
from topospread.calls.call import (
    Call,
    ServedMethod,
    ServerStreaming,
    Unary,
    call_ended,
    note_trace,
    parse,
    serialized,
)
from topospread.calls.rules import rules_of
from topospread.calls.sizes import MessageLimits
from topospread.errors import DeadlineExceeded, MethodNotServed
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.service.decisions.cycle import CycleCache
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.request import DEFAULT_CLUSTER, ProfileRegistry
from topospread.spread.settings import DEFAULT_RULES
from topospread.store.dict_store import DictStore
from topospread.store.values import listed
from topospread.telemetry.spans import CallSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence

    from topospread.access.certificates import CertificateNames
    from topospread.api.server_info import ServerFacts
    from topospread.calls.call import Metadata, Response
    from topospread.calls.sizes import SizeLimit
    from topospread.errors import TopospreadError
    from topospread.service.inspecting.inspector import Inspector
    from topospread.spread.settings import ConfiguredRules
    from topospread.store.model import Change, Kind, StoredObject
    from topospread.telemetry.meters import Result

MAX_CONSTRAINTS: Final = 1_000_000
"""Whoever loads a cluster into a process may have all of its constraints looked at."""

NO_KINDS: Final[Mapping[Kind, str]] = {}

_LONGEST: Final = 365 * 86_400.0
"""Seconds from which on a call has no deadline."""


def local_api(
    objects: Iterable[StoredObject],
    rules: ConfiguredRules = DEFAULT_RULES,
    cluster: str = DEFAULT_CLUSTER,
    *,
    kinds: Mapping[Kind, str] = NO_KINDS,
) -> LocalApi:
    """Load a cluster from its objects; InvalidRequest if it can have no such name.

    Args:
        objects: of the cluster.
        rules: of decisions.
        cluster: its name.
        kinds: those of which the objects are all that there are, with an empty text, and those of
            which they are not, with the reason. Of others there are all if there is one. Read
            after the objects.
    """
    there = list(objects)
    there += [listed(kind, unknown).object for kind, unknown in kinds.items()]
    return LocalApi(DictStore(cluster, there), rules)


class LocalApi:
    """A cluster that this process has in memory; see :func:`local_api`. Threads may share it.

    Attributes:
        methods: all that can be called: full names by those without service.
    """

    def __init__(self, store: DictStore, rules: ConfiguredRules) -> None:
        self._store = store
        options = ReplicaOptions(group_budget=Budget(GROUP_BYTES), follows=False)
        self._replicas = Replicas(store, options)
        self._replicas.preload((store.cluster,), seconds_from_now(_LONGEST))
        self._rules = rules
        self._started = time.time()
        engine = Engine(self._replicas, store, ProfileRegistry(rules), CycleCache())
        self._api = ApiMethods(
            UseCases(
                engine=engine,
                store=store,
                metrics=_Uncounted(),
                inspector=lambda: _inspector(engine),
                facts=self._facts,
            )
        )
        self.methods: Final = {path.rpartition("/")[2]: path for path in self._api}
        self._served: dict[str, ServedMethod] = {}

    def call(self, method: str, request: Message, *, timeout: float | None = None) -> Any:
        """The answer to a request.

        Args:
            method: its name without its service, as "EvaluatePod".
            request: its message.
            timeout: seconds that may be computed; None is no limit.

        Raises:
            TopospreadError: as a server answers.
        """
        served = self._method(method)
        assert isinstance(served.served, Unary), "a stream of answers is asked for by stream()"
        call = _call(served, timeout)
        if call.context.time_remaining() <= 0:
            raise DeadlineExceeded("the call's deadline passed before it was begun")
        with call.computation():
            read = parse(served.served.request, request.SerializeToString())
            return _message(call, served.served.serve(read, call))

    def stream(self, method: str, request: Message) -> Generator[Any, None, None]:
        """The answers to a request, until the iterator is closed; raises as call()."""
        served = self._method(method)
        assert isinstance(served.served, ServerStreaming), "one answer is asked for by call()"
        call = _call(served, None)
        read = parse(served.served.request, request.SerializeToString())
        for response in served.served.serve(read, call):
            yield _message(call, response)
        raise call_ended(call.context)

    def apply(self, changes: Iterable[Change]) -> None:
        """Put and remove objects in one step, which calls that begin afterwards see, and watches.

        The last word on each object holds, whatever its version.
        """
        self._store.feed(changes)
        for replica in self._replicas.running():
            replica.catch_up()

    def _method(self, name: str) -> ServedMethod:
        served = self._served.get(name)
        if served is None:
            path = self.methods.get(name)
            if path is None:
                raise MethodNotServed(f"{name} needs a server: what is loaded can only be read")
            rules = rules_of(*path.split("/"))
            served = self._served[name] = ServedMethod(
                f"/{path}",
                self._api[path],
                rules.executor,
                rules.permission,
                MessageLimits().of(name),
            )
        return served

    def _facts(self) -> ServerFacts:
        from importlib.metadata import version

        from topospread.api.server_info import ServerFacts, server_limits, settings_digest
        from topospread.config.settings import ServerSettings

        settings = ServerSettings(max_clusters=1, max_cluster_constraints=MAX_CONSTRAINTS)
        return ServerFacts(
            version("topospread"),
            "memory:",
            self._started,
            (),
            server_limits(settings),
            lambda: (1, ""),
            lambda: settings_digest(settings, self._rules),
        )


def _inspector(engine: Engine) -> Inspector:
    from topospread.service.inspecting.inspector import Inspector

    return Inspector(engine, MAX_CONSTRAINTS)


def _call(method: ServedMethod, timeout: float | None) -> Call:
    seconds = _LONGEST if timeout is None else min(timeout, _LONGEST)
    call = Call(method, _LocalContext(seconds_from_now(seconds)), time.perf_counter())
    call.span = CallSpan(getrandbits(128) or 1, getrandbits(64) or 1, 0)
    if not method.streaming:
        call.deadline = time.monotonic() + seconds
    return call


def _message(call: Call, response: Response) -> Message:
    if isinstance(response, Message):
        note_trace(call, response)
        return response
    service, _, name = call.method.path[1:].partition("/")
    found = descriptor_pool.Default().FindMethodByName(f"{service}.{name}")
    message: Message = GetMessageClass(found.output_type).FromString(serialized(call, response))
    return message


class _LocalContext:
    """A call whose caller waits in this process."""

    def __init__(self, deadline: float) -> None:
        self._deadline = deadline

    def is_active(self) -> bool:
        return True

    def time_remaining(self) -> float:
        return self._deadline - time.monotonic()

    def end(self, error: TopospreadError) -> None:
        """Nobody ends it."""

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        del callback
        return False

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        return ()

    def peer(self) -> str:
        return "local"

    def names(self) -> CertificateNames:
        from topospread.access.certificates import NO_NAMES

        return NO_NAMES

    def receive(self, limit: SizeLimit) -> None:
        pass

    def send_headers(self, headers: Metadata) -> None:
        pass

    def end_span(self, span: CallSpan, error: Exception | None) -> None:
        pass


class _Uncounted:
    """Counts nothing; see :class:`~topospread.api.decision.DecisionCounters`."""

    def extension_point(self, point: str, profile: str) -> _Uncounted:
        del point, profile
        return self

    def observe(self, status: str, seconds: float) -> None:
        pass

    def attempt(self, result: Result, profile: str) -> None:
        pass
