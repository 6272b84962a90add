"""docs/benchmarks.md, which users read, and the figures wanted, which stand in CONTRIBUTING.md."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.figures import MAX_OTHERS, TARGETS, rounded
from bench.plots import plots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.figures import Figures, Target
    from bench.options import BenchOptions


@dataclass(frozen=True, slots=True)
class Answer:
    """A row of the page's first table.

    Attributes:
        question: what a reader would ask.
        answer: a format; each `{bench.figure}` is that figure's median. Without one of them the
            row is left out.
    """

    question: str
    answer: str


GLANCE: Final = (
    Answer(
        "One pod on all nodes, beside kube-scheduler's own plugin",
        "{scheduler.evaluate_p50_ms} ms over gRPC, {scheduler.plugin_p50_ms} ms in kube-scheduler's"
        " process: **{scheduler.faster} × faster**, for {scheduler.cpu_ratio} × less CPU",
    ),
    Answer(
        "Beside an empty gRPC call, one caller",
        "p50 {decide.evaluate_p50_ms_c1} ms, empty {decide.echo_p50_ms_c1} ms",
    ),
    Answer(
        "10 and 50 callers, one server",
        "{decide.evaluate_rps} and {decide.evaluate_rps_c50} decisions a second, empty calls"
        " {decide.echo_rps} and {decide.echo_rps_c50}; server CPU"
        " {decide.evaluate_cpu_ratio} × an empty call's",
    ),
    Answer(
        "The same pod again, remembered",
        "{decide.evaluate_memo_rps} and {decide.evaluate_memo_rps_c50} a second; server CPU"
        " {decide.evaluate_memo_cpu_ratio} ×",
    ),
    Answer(
        "Twenty pods in one call", "{decide.batch_decisions_per_core_s} decisions a second and core"
    ),
    Answer("Ten times the pods", "{scale.pods_x10_ratio} × the CPU of a decision"),
    Answer("Ten times the nodes", "{scale.nodes_x10_ratio} × the CPU of a decision"),
    Answer("A selector never seen before", "{cold.cold_p50_ms} ms once"),
    Answer("While 1,000 objects a second change", "{changes.busy_loss:%} fewer decisions a second"),
    Answer(
        "With tracing of 1 % and of all calls",
        "{tracing.tracing_loss_1:%} and {tracing.tracing_loss_all:%} fewer decisions a second",
    ),
    Answer(
        "A write is seen by another replica, p99",
        "{changes.seen_p99_ms_redis} ms with Redis, {changes.seen_p99_ms_sqlite} ms with SQLite",
    ),
    Answer(
        "Places (PlacePod), two servers, eight callers",
        "{placements.places_per_s} a second in one namespace,"
        " {placements.places_per_s_64_namespaces} in 64; {placements.breaches} not allowed",
    ),
    Answer(
        "Explain a refusal, simulate 1,000 replicas",
        "{planner.explain_nowhere_p50_ms} ms, {planner.simulate_p50_ms} ms",
    ),
    Answer(
        "Rank all pods for deletion, rebalance all",
        "{planner.rank_all_p50_ms} ms, {planner.rebalance_all_p50_ms} ms",
    ),
    Answer(
        "A new replica",
        "ready {start.ready_s_redis} s after its port is open, {start.rss_used_mb_redis} MB",
    ),
)

LIMITS: Final = """\
- One machine of few cores has the server, its store and the callers on it, on loopback. A network
  adds its round trip; a server with cores of its own answers sooner. Ratios within a run carry
  over, microseconds do not.
- The cluster is made up: twenty apps, twenty shapes of pods, most without affinity, none with
  volumes.
- kube-scheduler's plugin is timed by itself and on all nodes. A scheduling cycle has a dozen other
  plugins beside it, and in clusters above 100 nodes judges a share of the nodes only.
- One process answers, on about one core. More: [one process a core](operations.md).
- "p50, one caller" is of a caller that asks again at once. Of many callers some wait: the curve by
  callers shows it."""

TITLES: Final = {
    "scheduler": "Beside kube-scheduler",
    "decide": "Decisions over gRPC",
    "scale": "As clusters grow",
    "cold": "Selectors never seen before",
    "changes": "Changes",
    "tracing": "Tracing",
    "placements": "Places",
    "planner": "Explanations and plans",
    "inspector": "All constraints of a cluster",
    "start": "Start and memory",
    "sync": "The sync from an API server",
    "extender": "kube-scheduler's extender",
    "client": "The Python client",
}
"""In the order of the page."""

ABOUT: Final = {
    "scheduler": """\
The plugin PodTopologySpread of an unchanged kube-scheduler, built from its source
(`bench/kube_scheduler/`), in its own process: PreFilter, Filter of all nodes over 16 goroutines,
PreScore, Score and NormalizeScore of those that passed, on a snapshot of the same cluster. Beside
it one caller of EvaluatePod, whose answer has all of that, over gRPC. Both judge the same twenty
pods by turns. `faster`: the plugin's median ÷ EvaluatePod's; `cpu_ratio`: the same of CPU.""",
    "extender": """\
Calls over HTTP/1.1 with 500 candidates by name, as a scheduler with nodeCacheCapable makes them:
each connection one call after the other, over four connections, or with `_c1` over one. The pods
are those of the decisions above; with `gzip` answers are packed. `place` reserves a node in a
SQLite file at each call.""",
    "decide": """\
`echo` is a server process set up as ours, with the same settings and cluster, whose handler takes
the same request bytes and answers none: no span, no metrics. Its calls are served by grpcio's own
threads (the two that are fastest there): what any Python server that stands on grpcio can reach.
`queue_echo` is the same empty handler by the transport that
[decisions take](decisions/0027-one-pipeline-two-lanes.md): what is left there to win.
`ratio`s are to the former, `queue_ratio`s to the latter. EvaluatePod's 20 pod shapes take turns,
with a new pod name each call; 1 % of the calls are traced and exported to a collector; metrics are
on. Results are remembered (which is the default) only where a figure says `memo`: each app's pods
come back unchanged here, so that is the best case, and a change to the app ends it. Figures without
`_c` are for 10 calls under way; 10 and 50 calls come over 8 connections. `cpu_us` is CPU of the
whole server process, from /proc, for each call; `others_cores` is what programs that have nothing
to do with the measurement took of the machine meanwhile. PreFilter, Filter and Score carry the pod
and the current node table; `batch` is a BatchEvaluatePods of the twenty pods. The client writes
HTTP/2 frames by itself; figures of `ghz` are beside it where it was at hand.""",
    "client": """\
EvaluatePod of the twenty pod shapes by `topospread_client`, beside the same calls by a stub as
protoc generates it; they take turns of 25 calls, one after the other, on the same server. `ratio`s
are of the calls' medians, `cpu_ratio`s of the CPU that the calling process spends on a call, gRPC's
own included. `proto`: the pod is given as a message, of which the stub's request is made, too;
`dict`: as a manifest, against the stub's message. `large` pods are what an API server has of a
Deployment's pod with five containers, their environment, volumes and affinity. Both read the best
node of the answer. `aio_`: the clients for asyncio.""",
    "tracing": """\
Three servers with the same cluster take turns: none, 1 % and all of the calls are recorded and
exported. Losses are shares of the first one's rate; lower than 0 is noise.""",
    "scale": """\
EvaluatePod in process, from request bytes to answer bytes with span and metrics: microseconds of
CPU. `x` figures are ratios to the usual size within one round.""",
    "cold": """\
The whole EvaluatePod of a pod whose selector was never used before, in process, milliseconds of
CPU.""",
    "changes": """\
`applied`: a replica takes in 20,000 changes that wait in its log, 10 to a transaction; with
`overlapping`, each pod counts for 50 of the 1,000 selectors instead of one. `busy`: EvaluatePod at
c=10 while 1,000 changes/s come to its cluster; `idle`: while the same are written to a cluster that
the server does not follow, so that writer and store cost the machine the same. `seen`: from the
acknowledgement of a write to the view that holds it in another process, 1,000 single writes/s;
`waiting`: the same for a caller that asks for its write's revision.""",
    "sync": """\
The sync from an API server of our own in a process beside it, into a SQLite file. `listed_per_s`:
all objects of the cluster, from the start to the last one written. `changes_per_s`: a burst of pods
that change in a label, from the first to the last one written; `heartbeats_per_s`: the same in what
is not kept, so that nothing is written. `cpu_us` is CPU of the sync's process for each.
`object_bytes`: of a pod's JSON.""",
    "start": """\
`ready_s`: from the first connection that the port takes to the announcement that the server is
ready; `process_ready_s`: from the start of the process. `rss_mb`: resident memory then;
`rss_used_mb`: after some seconds of decisions.""",
    "placements": """\
Eight callers place pods through two servers on one store, in one namespace and in 64, while pods
are bound, end and are deleted and nodes come, go and are tainted; `python -m bench race` is one
such round. `breaches` are places that the state just before them did not allow; `conflicts` are
judgements that another server's write made void; `place_cpu_us` is CPU of both servers for each
place.""",
    "planner": """\
Milliseconds of a call over gRPC, one after the other, by a client of the library: median and
slowest of a round. `explain` takes the twenty pod shapes by turns; `explain_nowhere` the same with
one more constraint that no domain meets, so that each suggestion is tried out; `simulate` places
1,000 replicas of each. `rank` orders the pods of three of the apps for deletion, over zones and
nodes; `rebalance` plans to even each of them out over zones, `rebalance_all` all of them.""",
    "inspector": """\
A cluster of 1,000 workloads with two constraints each. Milliseconds of a ListConstraints of 500,
the worst first, by a client of the library: the `first` of a server that has not looked at them
before (`--constraint-metrics none`), those of a state `at_rest`, and those after 20 pods `changed`.
`decision_cpu`: CPU of a server for each EvaluatePod at c=10 while 1,000 changes/s come to its
cluster, with `metrics` of constraints and with `none`; `ratio`s are to the latter, and `control` is
one more server without, which shows how far a ratio can be trusted.""",
}


def write(
    checkout: Path,
    found: Mapping[str, Figures],
    options: BenchOptions,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> None:
    """Write docs/benchmarks.md, its plots, and the table of CONTRIBUTING.md where it has a place.

    Args:
        checkout: the repository's folder.
        found: figures by bench.
        options: of the run.
        before: the environment at the beginning of the run.
        after: at its end.
    """
    pictures = checkout / "docs" / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    for old in pictures.glob("*.svg"):
        old.unlink()
    drawn = plots(found)
    for name, (_, picture) in drawn.items():
        (pictures / f"{name}.svg").write_text(picture, "utf-8")
    titles = {name: title for name, (title, _) in drawn.items()}
    page = "\n".join(_page(found, options, before, after, titles))
    (checkout / "docs" / "benchmarks.md").write_text(page + "\n", "utf-8")
    contributing = checkout / "CONTRIBUTING.md"
    if contributing.exists():
        text = contributing.read_text("utf-8")
        contributing.write_text(with_wanted(text, "\n".join(wanted(found, before))), "utf-8")


PLACE: Final = re.compile(r"(<!-- figures wanted -->\n).*?(<!-- end -->)", re.DOTALL)


def with_wanted(text: str, table: str) -> str:
    """Put the table between its marks in CONTRIBUTING.md."""
    return PLACE.sub(lambda marks: f"{marks[1]}\n{table}\n\n{marks[2]}", text)


def _page(
    found: Mapping[str, Figures],
    options: BenchOptions,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    pictures: Mapping[str, str],
) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield "What a decision costs beside what else there is. Written by `make bench`; change nothing"
    yield f"here by hand. Figures are medians of interleaved rounds ({options.rounds} of"
    yield f"{options.seconds:g} s a case). Compare ratios within one run: machines differ, and busy"
    yield "ones differ from hour to hour."
    yield ""
    size = options.size
    yield f"| made-up cluster of {size.nodes:,} nodes, {size.pods:,} pods | measured |"
    yield "|---|---|"
    for each in GLANCE:
        text = _filled(each.answer, found)
        if text:
            yield f"| {each.question} | {text} |"
    yield ""
    yield from _busy(found)
    yield "## What these figures do not say"
    yield ""
    yield LIMITS
    yield ""
    yield from _environment(before, after)
    for name, title in TITLES.items():
        if name not in found:
            continue
        yield f"## {title}"
        yield ""
        for picture, alt in pictures.items():
            if picture.startswith(name):
                yield f"![{alt}](benchmarks/{picture}.svg)"
                yield ""
        yield ABOUT[name]
        yield ""
        yield from _figures(found[name])


def _filled(answer: str, found: Mapping[str, Figures]) -> str:
    """An answer with its figures; nothing where one was not measured."""
    lacking = False

    def value(named: re.Match[str]) -> str:
        nonlocal lacking
        median = found[named[1]].median(named[2]) if named[1] in found else None
        if median is None:
            lacking = True
            return ""
        if named[3]:
            return f"{median * 100:.0f} %"
        return f"{median:,.0f}" if abs(median) >= 100 else f"{median:.2g}"

    text = re.sub(r"\{(\w+)\.(\w+)(:%)?\}", value, answer)
    return "" if lacking else text


def _busy(found: Mapping[str, Figures]) -> Iterator[str]:
    others = found["decide"].median("others_cores") if "decide" in found else None
    if others is not None and others > MAX_OTHERS:
        yield f"The machine was busy: other programs took {others:.2g} cores. This run's times **do"
        yield "not count**, its ratios do."
        yield ""


def _environment(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in before["versions"].items())
    machine = f"{before['machine']}, {before['cores']} cores, {before['memory_gb']} GB"
    load = " / ".join(str(load) for load in before["load"])
    load_after = " / ".join(str(load) for load in after["load"])
    yield "## Where it was measured"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| date | {before['date']} – {after['date']} |"
    yield f"| commit | {before['commit'] or 'unknown'} |"
    yield f"| machine | {machine}, {before['kernel']} |"
    yield f"| load average (1, 5, 15 min) | {load} before, {load_after} after |"
    yield f"| versions | Python {before['python']}, {versions} |"
    yield ""


def wanted(found: Mapping[str, Figures], before: Mapping[str, Any]) -> Iterator[str]:
    """The table of what is wanted and what was measured, for those who change the code."""
    yield f"Of {before['date']}, commit {before['commit'] or 'unknown'}; `make bench` writes it."
    yield ""
    yield "| figure | wanted | measured | met |"
    yield "|---|---|---|---|"
    for target in TARGETS:
        yield _row(target, found)


def _row(target: Target, found: Mapping[str, Figures]) -> str:
    value = target.measured(found)
    if value is None:
        figures = found.get(target.bench)
        reason = "" if figures is None else figures.missing.get(target.figure, "")
        return f"| {target.text} | {target.bound} | {reason or 'not measured'} | – |"
    met = "yes" if target.met(value) else "**no**"
    return f"| {target.text} | {target.bound} | {target.shown(value)} | {met} |"


def _figures(figures: Figures) -> Iterator[str]:
    yield "<details><summary>All figures</summary>"
    yield ""
    yield "| figure | median | lowest | highest |"
    yield "|---|--:|--:|--:|"
    for name, samples in figures.samples.items():
        median, low, high = (
            rounded(value) for value in (figures.median(name), min(samples), max(samples))
        )
        yield f"| {name} | {median:,g} | {low:,g} | {high:,g} |"
    for name, reason in figures.missing.items():
        yield f"| {name} | {reason} | | |"
    yield ""
    yield "</details>"
    yield ""
