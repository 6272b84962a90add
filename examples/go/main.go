// A caller in Go: tells a server of nodes and pods, asks where a pod fits, has a node held for it, watches.
//
// docs/other-languages.md says how the packages are generated that this one imports.
package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	kubernetesv1 "github.com/topospread/topospread/gen/go/topospread/kubernetes/v1"
	topospreadv1 "github.com/topospread/topospread/gen/go/topospread/v1"
)

const cluster, zone = "go", "topology.kubernetes.io/zone"

func node(name, inZone string) *topospreadv1.ClusterObject {
	return &topospreadv1.ClusterObject{Content: &topospreadv1.ClusterObject_Node{Node: &kubernetesv1.Node{
		Metadata: &kubernetesv1.ObjectMeta{Name: name, Labels: map[string]string{zone: inZone}},
		Status: &kubernetesv1.NodeStatus{
			Allocatable: map[string]*kubernetesv1.Quantity{"pods": {String_: "110"}},
		},
	}}}
}

// pod has a constraint: pods of one app shall differ by at most one between zones.
func pod(name, onNode string) *kubernetesv1.Pod {
	labels := map[string]string{"app": "web"}
	return &kubernetesv1.Pod{
		Metadata: &kubernetesv1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels},
		Spec: &kubernetesv1.PodSpec{
			NodeName: onNode,
			TopologySpreadConstraints: []*kubernetesv1.TopologySpreadConstraint{{
				MaxSkew: 1, TopologyKey: zone, WhenUnsatisfiable: "DoNotSchedule",
				LabelSelector: &kubernetesv1.LabelSelector{MatchLabels: labels},
			}},
		},
	}
}

// source is a pod to ask about. Whoever has a corev1.Pod takes its Marshal() in place of proto.Marshal.
func source(pod *kubernetesv1.Pod) *topospreadv1.PodSource {
	data, err := proto.Marshal(pod)
	if err != nil {
		log.Fatal(err)
	}
	return &topospreadv1.PodSource{Source: &topospreadv1.PodSource_ObjectProto{ObjectProto: data}}
}

// failure is what an error says to a program: the reason, UNSPECIFIED where gRPC itself made the error, and after which
// pause to try again. Where trying again does not help, `again` is false.
func failure(err error) (reason topospreadv1.ErrorReason, pause time.Duration, again bool) {
	for _, detail := range status.Convert(err).Details() {
		switch detail := detail.(type) {
		case *errdetails.ErrorInfo:
			if detail.GetDomain() == "topospread.io" {
				name := "ERROR_REASON_" + detail.GetReason()
				reason = topospreadv1.ErrorReason(topospreadv1.ErrorReason_value[name])
			}
		case *errdetails.RetryInfo:
			pause, again = detail.GetRetryDelay().AsDuration(), true
		}
	}
	return reason, pause, again
}

// patiently makes a call that may be made twice until trying again does not help, or the context ends.
func patiently[Answer any](ctx context.Context, call func() (Answer, error)) (Answer, error) {
	for {
		answer, err := call()
		if err == nil {
			return answer, nil
		}
		_, pause, again := failure(err)
		if !again {
			return answer, err
		}
		select {
		case <-ctx.Done():
			return answer, err
		case <-time.After(pause):
		}
	}
}

func must[Answer any](answer Answer, err error) Answer {
	if err != nil {
		reason, _, _ := failure(err)
		log.Fatal(reason, ": ", err)
	}
	return answer
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	channel := must(open(os.Args[1]))
	defer channel.Close()
	state := topospreadv1.NewClusterStateServiceClient(channel)
	decisions := topospreadv1.NewDecisionServiceClient(channel)
	placement := topospreadv1.NewPlacementServiceClient(channel)

	// Each write returns a revision; a question that names it is answered with that write.
	bound := &topospreadv1.ClusterObject{Content: &topospreadv1.ClusterObject_Pod{Pod: pod("web-0", "node-a")}}
	applied := must(patiently(ctx, func() (*topospreadv1.ApplyObjectsResponse, error) {
		return state.ApplyObjects(ctx, &topospreadv1.ApplyObjectsRequest{
			Cluster: cluster,
			Objects: []*topospreadv1.ClusterObject{node("node-a", "a"), node("node-b", "b"), bound},
		})
	}))
	for _, each := range applied.GetResults() {
		fmt.Println("apply:", each.GetName(), each.GetOutcome())
	}

	evaluated := must(decisions.EvaluatePod(ctx, &topospreadv1.EvaluatePodRequest{
		Cluster: cluster,
		Pod:     source(pod("web-1", "")),
		Consistency: &topospreadv1.Consistency{Requirement: &topospreadv1.Consistency_AtLeastAsFresh{
			AtLeastAsFresh: applied.GetMeta().GetRevision(),
		}},
	}))
	fmt.Println("evaluate:", evaluated.GetFeasibleNodeCount(), "of", evaluated.GetNodeCount(), "nodes")
	for _, each := range evaluated.GetVerdictCounts() {
		fmt.Println("evaluate:", each.GetNodeCount(), each.GetVerdict().GetCode(), each.GetVerdict().GetReasons())
	}

	placed := must(patiently(ctx, func() (*topospreadv1.PlacePodResponse, error) {
		return placement.PlacePod(ctx, &topospreadv1.PlacePodRequest{
			Cluster: cluster, Pod: source(pod("web-1", "")), ReservationTtl: durationpb.New(30 * time.Second),
		})
	}))
	fmt.Println("place:", placed.GetVerdict().GetCode(), placed.GetNode())

	// What there is, up to a bookmark; a watch that goes on would keep the last revision to begin again from.
	watching, stop := context.WithCancel(ctx)
	watch := must(state.WatchObjects(watching, &topospreadv1.WatchObjectsRequest{
		Cluster:     cluster,
		Kinds:       []topospreadv1.Kind{topospreadv1.Kind_KIND_POD, topospreadv1.Kind_KIND_RESERVATION},
		SendInitial: true,
	}))
	for synced := false; !synced; {
		for _, event := range must(watch.Recv()).GetEvents() {
			fmt.Println("watch:", event.GetType(), event.GetRef().GetName())
			synced = synced || event.GetType() == topospreadv1.WatchEventType_WATCH_EVENT_TYPE_BOOKMARK
		}
	}
	stop()
}
