"""docs/benchmarks.md: what was measured, where, and whether it is what was asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from bench.figures import MAX_ECHO_US, TARGETS, rounded
from bench.plots import plots

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from bench.figures import Figures, Target
    from bench.options import BenchOptions

TITLES: Final = {
    "decide": "Decisions over gRPC",
    "client": "The Python client",
    "tracing": "Tracing",
    "scale": "Decisions as clusters grow",
    "cold": "Selectors never seen before",
    "changes": "Changes",
    "sync": "The sync from an API server",
    "start": "Start and memory",
    "placements": "Placements",
    "extender": "kube-scheduler's extender",
    "planner": "The planner",
    "inspector": "All constraints of a cluster",
}

ABOUT: Final = {
    "extender": """\
Calls over HTTP/1.1 with 500 candidates by name, as a scheduler with nodeCacheCapable makes them:
each connection one call after the other, over four connections, or with `_c1` over one. The pods
are those of the decisions above; with `gzip` answers are packed. `place` reserves a node in a
SQLite file at each call.""",
    "decide": """\
`echo` is a server process set up as ours, with the same settings and cluster, whose handler takes
the same request bytes and answers none: no span, no metrics. Its calls are served by grpcio's own
threads (`--transport grpcio-threads`, with the two that are fastest there): what any Python server
that stands on grpcio can reach. `queue_echo` is the same empty handler by the transport that
[decisions take](decisions/0025-decisions-from-the-completion-queue.md): what is left there to win.
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
    directory: Path,
    found: Mapping[str, Figures],
    options: BenchOptions,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
) -> None:
    """Write benchmarks.md and its plots.

    Args:
        directory: of the page; plots go to `benchmarks/` in it.
        found: figures by bench.
        options: of the run.
        before: the environment at the beginning of the run.
        after: at its end.
    """
    pictures = directory / "benchmarks"
    pictures.mkdir(parents=True, exist_ok=True)
    drawn = plots(found)
    for name, (_, picture) in drawn.items():
        (pictures / f"{name}.svg").write_text(picture, "utf-8")
    page = "\n".join(
        _page(found, options, before, after, {n: alt for n, (alt, _) in drawn.items()})
    )
    (directory / "benchmarks.md").write_text(page + "\n", "utf-8")


def _page(
    found: Mapping[str, Figures],
    options: BenchOptions,
    before: Mapping[str, Any],
    after: Mapping[str, Any],
    pictures: Mapping[str, str],
) -> Iterator[str]:
    yield "# Benchmarks"
    yield ""
    yield "Written by `make bench`; change nothing here by hand. Figures are medians of interleaved"
    rounds = f"rounds ({options.rounds} of {options.seconds:g} s a case)"
    yield f"{rounds}, with the lowest and highest round."
    yield "Compare ratios within one run: machines differ, and busy ones differ from hour to hour."
    yield ""
    yield from _environment(options, before, after)
    yield from _targets(found)
    for name, figures in found.items():
        yield f"## {TITLES[name]}"
        yield ""
        yield ABOUT[name]
        yield ""
        for picture, alt in pictures.items():
            if picture.startswith(name):
                yield f"![{alt}](benchmarks/{picture}.svg)"
                yield ""
        yield from _figures(figures)


def _environment(
    options: BenchOptions, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Iterator[str]:
    versions = ", ".join(f"{name} {version}" for name, version in before["versions"].items())
    machine = f"{before['machine']}, {before['cores']} cores, {before['memory_gb']} GB"
    load = " / ".join(str(load) for load in before["load"])
    load_after = " / ".join(str(load) for load in after["load"])
    yield "| | |"
    yield "|---|---|"
    yield f"| date | {before['date']} – {after['date']} |"
    yield f"| commit | {before['commit'] or 'unknown'} |"
    yield f"| machine | {machine}, {before['kernel']} |"
    yield f"| load average (1, 5, 15 min) | {load} before, {load_after} after |"
    yield f"| versions | Python {before['python']}, {versions} |"
    size = options.size
    yield f"| cluster | {size.nodes:,} nodes, {size.pods:,} pods, made up (fixed seed) |"
    yield ""


def _targets(found: Mapping[str, Figures]) -> Iterator[str]:
    yield "## Targets"
    yield ""
    echo = found["decide"].median("echo_cpu_us") if "decide" in found else None
    if echo is not None:
        counts = "counts" if echo <= MAX_ECHO_US else "**does not count: the machine was busy**"
        yield f"Echo costs {echo:.0f} µs of server CPU a call at c=10; up to {MAX_ECHO_US:.0f} µs a"
        yield f"run's microseconds count. This one {counts}."
        yield ""
    yield "| target | asked for | measured | met |"
    yield "|---|---|---|---|"
    for target in TARGETS:
        yield _row(target, found)
    yield ""


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
