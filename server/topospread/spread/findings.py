"""Findings: what is wrong with a constraint, by the codes of lint, explanations and reports."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class FindingCode(Enum):
    """A reason why a constraint may not have the effect that its author intended."""

    SELF_MISMATCH = "SelfMismatch"
    NIL_SELECTOR = "NilSelector"
    EMPTY_SELECTOR = "EmptySelector"
    KEY_ON_NO_NODE = "KeyOnNoNode"
    KEY_ON_SOME_NODES = "KeyOnSomeNodes"
    MIN_DOMAINS_OUT_OF_REACH = "MinDomainsOutOfReach"
    MIN_DOMAINS_IGNORED = "MinDomainsIgnored"
    LABEL_KEY_MISSING = "LabelKeyMissing"
    DEFAULTS_WITHOUT_ZONE = "DefaultsWithoutZone"
    DEFAULTS_WITHOUT_SELECTOR = "DefaultsWithoutSelector"
    NOT_PARSED = "NotParsed"
    ALREADY_BOUND = "AlreadyBound"
    INVALID_CONSTRAINT = "InvalidConstraint"
    UNKNOWN_FIELD = "UnknownField"
    ROLLOUT_SKEW = "RolloutSkew"
    ROLLOUT_DEADLOCK = "RolloutDeadlock"
    TOO_FEW_DOMAINS = "TooFewDomains"
    UNUSABLE_NODES_COUNTED = "UnusableNodesCounted"
    SINGLE_DOMAIN = "SingleDomain"
    MAX_SKEW_TOO_LARGE = "MaxSkewTooLarge"
    WIDER_SELECTOR = "WiderSelector"
    DEPRECATED_KEY = "DeprecatedKey"
    MISSPELT_KEY = "MisspeltKey"
    DEFAULTS_REPLACED = "DefaultsReplaced"
    NO_CONSTRAINTS = "NoConstraints"
    VOLUMES_PIN_PODS = "VolumesPinPods"


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        constraint: its index in the pod's list, or in the profile's; −1 for the pod as a whole.
        text: for people.
    """

    code: FindingCode
    constraint: int
    text: str
