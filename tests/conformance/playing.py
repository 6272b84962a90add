"""Playing a story on an evaluator: one question with many expectations, or a sequence of steps."""

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tests.conformance.cases import Json, differences
from tests.conformance.evaluators import Evaluator
from tests.conformance.stories import VERBS, Story, bare_pod, parts, running, within


def played(story: Story, evaluator: Evaluator) -> Iterator[str]:
    """How a story comes out otherwise than it is told."""
    yield from story_differences(story, evaluator)
    play = Play(story, evaluator)
    for number, step in enumerate(story.steps, start=1):
        yield from (f"step {number}: {line}" for line in play.play(step))


def story_differences(story: Story, evaluator: Evaluator) -> list[str]:
    """How the evaluator's answer differs from what a story without steps expects; empty if not."""
    answer = evaluator.evaluate(story.decision())
    fitting = feasible(story, answer)
    checks = {
        "fits": lambda expected: unlike("fits", names(story, expected), fitting),
        "verdicts": lambda expected: verdicts_unlike(story, answer, expected),
        "prefers": lambda expected: preference_unlike(story, evaluator, fitting, expected),
        "preFilter": lambda expected: unlike("preFilter", expected, code(answer, "preFilter")),
        "preScore": lambda expected: unlike("preScore", expected, code(answer, "preScore")),
        "newError": lambda expected: unlike("newError", expected, "newError" in answer),
        "message": lambda expected: unlike(
            "message", expected, (evaluator.condition(story.decision()) or {}).get("message")
        ),
        "derived": lambda _: map(
            str,
            differences(
                evaluator.evaluate(story.written_out().decision()), answer, evaluator.members
            ),
        ),
    }
    return [line for member, expected in story.expect.items() for line in checks[member](expected)]


def code(answer: Json, member: str) -> str | None:
    """The code of preFilter or preScore, or None where there is no such status."""
    return (answer.get(member) or {}).get("code")


def unlike(what: str, expected: Any, got: Any) -> list[str]:
    """One line when the two differ."""
    return [] if expected == got else [f"{what}: expected {expected}, got {got}"]


def names(story: Story, expected: list[str]) -> list[str]:
    """The sorted names of the feasible nodes that a story calls by name or by domain."""
    nodes = within(story.cluster["nodes"], expected, story.levels)
    return sorted({node["metadata"]["name"] for node in nodes} - story.infeasible)


def feasible(story: Story, answer: Json) -> list[str]:
    """The sorted names of the nodes that pass Filter and that no other plugin refuses."""
    verdicts = answer.get("filter", {})
    return sorted(
        name
        for name in (node["metadata"]["name"] for node in story.cluster["nodes"])
        if name not in story.infeasible
        and ("filter" not in answer or verdicts[name]["code"] == "Success")
    )


def verdicts_unlike(story: Story, answer: Json, expected: dict[str, str]) -> list[str]:
    """The nodes whose verdict is another than the one expected of them or their domain."""
    return [
        line
        for place, code in expected.items()
        for node in within(story.cluster["nodes"], [place], story.levels)
        for line in unlike(
            node["metadata"]["name"], code, answer["filter"][node["metadata"]["name"]]["code"]
        )
    ]


def preference_unlike(
    story: Story, evaluator: Evaluator, fitting: list[str], expected: list[list[str]]
) -> list[str]:
    """The groups of equally good nodes, best first, when they are not the expected ones."""
    scores = evaluator.evaluate(story.decision(fitting))["normalized"]
    groups = [
        sorted(name for name, score in scores.items() if score == level)
        for level in sorted(set(scores.values()), reverse=True)
    ]
    return unlike("prefers", [names(story, group) for group in expected], groups)


@dataclass
class Play:
    """A story's cluster as its steps change it, with a scheduler that asks the evaluator.

    Attributes:
        story: the story as it stands after the steps played so far.
        evaluator: who is asked.
        waiting: names of created pods that have no node.
        placed: names of created pods that have one.
        created: how many pods were created so far.
    """

    story: Story
    evaluator: Evaluator
    waiting: list[str] = field(default_factory=list)
    placed: list[str] = field(default_factory=list)
    created: int = 0

    def play(self, step: Json) -> list[str]:
        """Do what the step says, try the waiting pods again, and say what differs then."""
        self.story = replace(self.story, cluster=copy.deepcopy(self.story.cluster))
        match {verb: step[verb] for verb in VERBS & set(step)}:
            case {"create": count}:
                self.waiting += [f"new-{self.created + n + 1}" for n in range(count)]
                self.created += count
            case {"join": cluster}:
                nodes, pods = parts(cluster, list(self.story.levels), self.story.group)
                self.story.cluster["nodes"] += nodes
                self.story.cluster["pods"] += pods
            case {"delete": gone}:
                self.delete(gone)
            case {"gates": gates}:
                self.story = replace(self.story, gates=gates)
        self.schedule()
        return self.differing(step)

    def delete(self, gone: list[str]) -> None:
        """Delete pods, waiting or running, by name."""
        for name in gone:
            pods = self.story.cluster["pods"]
            for names_of_created in (self.waiting, self.placed):
                if name in names_of_created:
                    names_of_created.remove(name)
            self.story.cluster["pods"] = [p for p in pods if p["metadata"]["name"] != name]

    def schedule(self) -> None:
        """Place each waiting pod, in order of creation, on the best node it fits."""
        for name in list(self.waiting):
            pod = copy.deepcopy(self.story.pod)
            pod["metadata"] |= {"name": name}
            case = replace(self.story, pod=pod).decision()
            answer = self.evaluator.evaluate(case)
            fitting = feasible(self.story, answer)
            if not fitting:
                continue
            scores = answer.get("normalized", {})
            pods = Counter(p["spec"]["nodeName"] for p in self.story.cluster["pods"])
            best = min(fitting, key=lambda node: (-scores.get(node, 0), pods[node], node))
            labels = pod["metadata"]["labels"]
            bound = bare_pod(name, labels) | running(name, best, labels)
            cluster = self.story.cluster
            # A new object for every state: an evaluator may recognise a cluster by identity.
            changed = cluster | {"pods": [*cluster["pods"], bound]}
            self.story = replace(self.story, cluster=changed)
            self.waiting.remove(name)
            self.placed.append(name)

    def differing(self, step: Json) -> list[str]:
        """What is not as the step tells."""
        found = []
        if "placed" in step:
            found += unlike("placed", step["placed"], len(self.placed))
        if "waiting" in step:
            found += unlike("waiting", step["waiting"], len(self.waiting))
        for place, count in step.get("spread", {}).items():
            nodes = names(replace(self.story, infeasible=frozenset()), [place])
            pods = [p for p in self.story.cluster["pods"] if p["spec"]["nodeName"] in nodes]
            found += unlike(f"pods in {place}", count, len(pods))
        return found
