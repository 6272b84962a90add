"""Which rules are in force: the configuration's profiles and gates, swapped whole."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from topospread.codec.scheduler_config import ConfiguredRules
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.violations import NOT_SUPPORTED
from topospread.spread.settings import (
    DEFAULT_PROFILE,
    GATE_NAMES,
    FeatureGates,
    Profile,
    Rules,
)

if TYPE_CHECKING:
    from topospread.service.asks import SettingsAsk

DEFAULT_RULES: Final = ConfiguredRules({DEFAULT_PROFILE: Profile()}, FeatureGates())
"""kube-scheduler's own defaults."""


class RulesBook:
    """Answers which rules judge a pod. Reading takes no lock; :meth:`replace` swaps."""

    def __init__(self, current: ConfiguredRules | None = None) -> None:
        self._cache: dict[str, Rules] = {}
        self.current = DEFAULT_RULES if current is None else current

    def replace(self, rules: ConfiguredRules) -> None:
        """Put other rules in force, for calls that begin from now on."""
        self.current, self._cache = rules, {}

    def rules_for(self, settings: SettingsAsk, scheduler_name: str) -> Rules:
        """The rules for one call.

        A pod whose schedulerName names no profile is judged by the first one: it is another
            scheduler's pod, and
        that scheduler asks.

        Raises:
            InvalidRequest: an unknown profile or gate.
        """
        current = self.current
        if not settings.profile and not settings.gates:
            cache = self._cache
            rules = cache.get(scheduler_name or DEFAULT_PROFILE)
            if rules is None:
                # By profile, of which there are few; callers may name any scheduler.
                chosen = self._by_scheduler(current, scheduler_name)
                rules = cache.get(chosen.name)
                if rules is None:
                    rules = Rules(chosen, current.gates)
                    if current is self.current:
                        cache[chosen.name] = rules
            return rules
        violations: list[FieldViolation] = []
        profile = self._asked(current, settings.profile, scheduler_name, violations)
        violations += [_unknown_gate(name) for name in settings.gates if name not in GATE_NAMES]
        if violations or profile is None:
            raise InvalidRequest.of(violations)
        return Rules(profile, current.gates.switched(settings.gates))

    def _asked(
        self,
        current: ConfiguredRules,
        asked: str | Profile,
        scheduler_name: str,
        violations: list[FieldViolation],
    ) -> Profile | None:
        if isinstance(asked, Profile):
            return asked
        if not asked:
            return self._by_scheduler(current, scheduler_name)
        profile = current.profiles.get(asked)
        if profile is None:
            known = ", ".join(sorted(current.profiles))
            violations.append(
                FieldViolation(
                    "settings.profile",
                    f"no such profile; the configuration has: {known}",
                    "Not found",
                    asked,
                )
            )
        return profile

    @staticmethod
    def _by_scheduler(current: ConfiguredRules, scheduler_name: str) -> Profile:
        profile = current.profiles.get(scheduler_name or DEFAULT_PROFILE)
        return next(iter(current.profiles.values())) if profile is None else profile


def _unknown_gate(name: str) -> FieldViolation:
    close = difflib.get_close_matches(name, GATE_NAMES, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(GATE_NAMES))}"
    path, text = f"settings.featureGates[{name}]", "unknown feature gate" + hint
    return FieldViolation(path, text, NOT_SUPPORTED, name)
