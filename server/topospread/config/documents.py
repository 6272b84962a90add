"""The configuration file: YAML documents of two kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import yaml
from typing_extensions import override

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

SCHEDULER_KIND: Final = "KubeSchedulerConfiguration"
OWN_KIND: Final = "TopospreadConfiguration"
OWN_VERSION: Final = "topospread.io/v1"

FEATURE_GATES: Final = "featureGates"
"""The key of OWN_KIND that is no setting: it may change while the server runs, as profiles may."""

_KINDS: Final = (OWN_KIND, SCHEDULER_KIND)

Document = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The documents of a configuration file; absent ones are None.

    Attributes:
        own: the TopospreadConfiguration.
        scheduler: the KubeSchedulerConfiguration, its apiVersion not yet looked at.
    """

    own: Document | None = None
    scheduler: Document | None = None


def yaml_documents(text: str, name: str) -> list[Any]:
    """The documents of a YAML text; empty ones are left out, keys that come twice refused.

    Raises:
        ConfigError: it is not YAML.
    """
    try:
        return [one for one in yaml.load_all(text, _Loader) if one is not None]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError(f"{name}: this is not YAML: {_where(error)}") from error


def read_documents(text: str, name: str) -> ConfigFile:
    """Tell the documents of a file apart; none at all is fine.

    Raises:
        ConfigError: it is not YAML, or a document is of another kind or comes twice.
    """
    documents = yaml_documents(text, name)
    found: dict[str, Document] = {}
    for position, document in enumerate(documents, 1):
        kind = _kind_of(document, f"{name}: document {position}")
        if kind in found:
            raise ConfigError(f"{name}: a second {kind}; put everything into one")
        found[kind] = document
    return ConfigFile(found.get(OWN_KIND), found.get(SCHEDULER_KIND))


def closest(word: str, known: Iterable[str], cutoff: float = 0.6) -> str:
    """The known word that is most like this one, or an empty text."""
    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), "")


def suggestion(word: str, known: Iterable[str]) -> str:
    """``; did you mean X?`` for a word that is like a known one, else an empty text."""
    close = closest(word, known)
    return f"; did you mean {close}?" if close else ""


def _kind_of(document: object, where: str) -> str:
    expected = f"kind: {OWN_KIND} or kind: {SCHEDULER_KIND}"
    if not isinstance(document, Mapping):
        raise ConfigError(f"{where}: not a mapping; it needs {expected}")
    kind = document.get("kind")
    if kind is None:
        raise ConfigError(f"{where}: no kind; it needs {expected}")
    if kind not in _KINDS:
        raise ConfigError(f"{where}: kind {kind!r} is unknown{suggestion(str(kind), _KINDS)}")
    version = document.get("apiVersion")
    if kind == OWN_KIND and version != OWN_VERSION:
        raise ConfigError(f"{where}: apiVersion {version!r} is unknown; write {OWN_VERSION}")
    return str(kind)


def _where(error: Exception) -> str:
    if not isinstance(error, yaml.MarkedYAMLError):
        return str(error) or type(error).__name__
    mark = error.problem_mark or error.context_mark
    line = f"line {mark.line + 1}: " if mark else ""
    return f"{line}{error.problem or error.context}"


class DistinctKeys(yaml.constructor.SafeConstructor):
    """Constructor that refuses keys that come twice, as Kubernetes does."""

    @override
    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    self.take_second(node, key)
                seen.add(key.value)
        return super().construct_mapping(node, deep)

    def take_second(self, node: yaml.MappingNode, key: yaml.ScalarNode) -> None:
        """Refuse a key of a mapping that comes a second time; the last value is taken otherwise."""
        problem = f"the key {key.value!r} is given twice"
        raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)


class _Loader(DistinctKeys, yaml.SafeLoader):
    """Loader that leaves dates as texts."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - PyYAML's own attribute
        first: [resolver for resolver in resolvers if resolver[0] != "tag:yaml.org,2002:timestamp"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
