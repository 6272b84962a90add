"""Settings of where the server listens, and what it serves there beside gRPC."""

from dataclasses import dataclass
from typing import Annotated, Final

from topospread.config import values
from topospread.config.spelling import About
from topospread.config.values import Address

DEFAULT_LISTEN: Final = Address("127.0.0.1", 7946)
DEFAULT_HTTP: Final = Address("127.0.0.1", 7947)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class ListenerSettings:
    """A part of :class:`~topospread.config.settings.ServerSettings`, which makes its methods."""

    config: Annotated[
        str,
        About(
            values.text(),
            "",
            "YAML file with a TopospreadConfiguration, a KubeSchedulerConfiguration, or both.",
            "Without one, kube-scheduler's defaults hold.",
        ),
    ] = ""
    listen: Annotated[
        Address,
        About(
            values.address(),
            "",
            "Where gRPC is served. Port 0 lets the system choose.",
            "Loopback, because nothing is encrypted by default; below 32768, where ports for"
            " outgoing connections begin.",
        ),
    ] = DEFAULT_LISTEN
    http: Annotated[
        Address | None,
        About(
            values.address_or_off(),
            "",
            "Where /metrics, /livez and /readyz are served, or `off`.",
            "Next to gRPC's port.",
        ),
    ] = DEFAULT_HTTP
    extender: Annotated[
        str,
        About(
            values.choice("filter", "place", "off"),
            "",
            "What kube-scheduler's extender does: `filter` judges, `place` also holds the node that"
            " it answers; a URL may say otherwise. `off` serves none.",
            "Judging writes nothing.",
        ),
    ] = "filter"
    extender_listen: Annotated[
        Address | None,
        About(
            values.address_or_off(),
            "",
            "Where the extender is served by itself; `off`: beside /metrics, on --http. Several"
            " --workers need it, because there a supervisor serves --http.",
            "One port less to open.",
        ),
    ] = None
    extender_hold: Annotated[
        float,
        About(
            values.seconds(1.0),
            "seconds",
            "How long `place` holds a node for a pod that is not seen there.",
            "Some times what a scheduler needs to bind a pod, and a feed to tell of it.",
        ),
    ] = 60.0
    extender_wake: Annotated[
        str,
        About(
            values.choice("auto", "on", "off"),
            "",
            "Wake a pod that the extender refused when it fits: by a condition in the pod's status,"
            " which kube-scheduler takes for an event. Of the cluster --sync-cluster, at the API"
            " server of --sync-kubeconfig. `auto`: with --sync.",
            "A scheduler that tries too early does not try again for minutes; needs patch of"
            " pods/status, and does nothing without it.",
        ),
    ] = "auto"
    expander_listen: Annotated[
        Address | None,
        About(
            values.address_or_off(),
            "",
            "Where cluster-autoscaler's expander is served by itself, or `off`: with requests of up"
            " to 128 MiB, two at a time, asking for neither token nor client certificate. The main"
            " address serves it as well, with its own limits.",
            "Who needs it names an address.",
        ),
    ] = None
    expander_cluster: Annotated[
        str,
        About(
            values.text(),
            "",
            "The cluster whose autoscaler asks: its protocol names none.",
            "As elsewhere.",
        ),
    ] = "default"
    expander_refuses: Annotated[
        bool,
        About(
            values.switch(),
            "",
            "Answer no option where none would place a pod, which stops the scale-up; off answers"
            " all of them.",
            "What is not modelled here may yet let a pod in.",
        ),
    ] = False
