// The plugin PodTopologySpread of kube-scheduler, timed on a cluster from a file.
//
// Reads {"objects": [...], "incoming": [...]} from the file of its first argument, as JSON of
// Kubernetes. Then each line of stdin is a number of seconds; for so long it judges the incoming
// pods by turns, each on all nodes, as a scheduling cycle does with percentageOfNodesToScore 100:
// PreFilter, Filter over 16 goroutines, PreScore and Score of the nodes that passed,
// NormalizeScore. It answers with a line of JSON: pods judged, CPU and median in seconds.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/podtopologyspread"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

type input struct {
	Objects  []json.RawMessage `json:"objects"`
	Incoming []*v1.Pod         `json:"incoming"`
}

type plugin struct {
	*podtopologyspread.PodTopologySpread
	handle framework.Framework
	nodes  []fwk.NodeInfo
}

type measured struct {
	Pods   int     `json:"pods"`
	CPU    float64 `json:"cpuSeconds"`
	Median float64 `json:"medianSeconds"`
}

func main() {
	ctx := context.Background()
	plugin, incoming, err := load(ctx, os.Args[1])
	exitOn(err)
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		seconds, err := strconv.ParseFloat(strings.TrimSpace(lines.Text()), 64)
		exitOn(err)
		found, err := plugin.measure(ctx, incoming, time.Duration(seconds*float64(time.Second)))
		exitOn(err)
		exitOn(json.NewEncoder(os.Stdout).Encode(found))
	}
}

func load(ctx context.Context, path string) (*plugin, []*v1.Pod, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var given input
	if err := json.Unmarshal(data, &given); err != nil {
		return nil, nil, err
	}
	var pods []*v1.Pod
	var nodes []*v1.Node
	var others []runtime.Object
	for _, raw := range given.Objects {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(raw, nil, nil)
		if err != nil {
			return nil, nil, err
		}
		switch typed := object.(type) {
		case *v1.Pod:
			pods = append(pods, typed)
		case *v1.Node:
			nodes = append(nodes, typed)
		default:
			others = append(others, object)
		}
	}
	metrics.Register()
	informer := informers.NewSharedInformerFactory(fake.NewClientset(others...), 0)
	snapshot := cache.NewSnapshot(pods, nodes)
	handle, err := frameworkruntime.NewFramework(ctx, nil, nil,
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithInformerFactory(informer))
	if err != nil {
		return nil, nil, err
	}
	arguments := &config.PodTopologySpreadArgs{DefaultingType: config.SystemDefaulting}
	features := feature.NewSchedulerFeaturesFromGates(utilfeature.DefaultFeatureGate)
	made, err := podtopologyspread.New(ctx, arguments, handle, features)
	if err != nil {
		return nil, nil, err
	}
	informer.Start(ctx.Done())
	informer.WaitForCacheSync(ctx.Done())
	infos, err := snapshot.NodeInfos().List()
	if err != nil {
		return nil, nil, err
	}
	return &plugin{made.(*podtopologyspread.PodTopologySpread), handle, infos}, given.Incoming, nil
}

func (p *plugin) measure(ctx context.Context, incoming []*v1.Pod, limit time.Duration) (*measured, error) {
	var taken []float64
	begun, spent := time.Now(), processCPU()
	for time.Since(begun) < limit {
		for _, pod := range incoming {
			started := time.Now()
			if err := p.judge(ctx, pod); err != nil {
				return nil, err
			}
			taken = append(taken, time.Since(started).Seconds())
		}
	}
	spent = processCPU() - spent
	slices.Sort(taken)
	return &measured{len(taken), spent, taken[len(taken)/2]}, nil
}

// judge is one cycle of the plugin for one pod, over all nodes.
func (p *plugin) judge(ctx context.Context, pod *v1.Pod) error {
	state := framework.NewCycleState()
	feasible := p.nodes
	_, status := p.PreFilter(ctx, state, pod, p.nodes)
	if !status.IsSkip() {
		if !status.IsSuccess() {
			return status.AsError()
		}
		passed := make([]fwk.NodeInfo, len(p.nodes))
		var length int32
		p.handle.Parallelizer().Until(ctx, len(p.nodes), func(at int) {
			if p.Filter(ctx, state, pod, p.nodes[at]).IsSuccess() {
				passed[atomic.AddInt32(&length, 1)-1] = p.nodes[at]
			}
		}, "Filter")
		feasible = passed[:length]
	}
	if len(feasible) == 0 {
		return nil
	}
	status = p.PreScore(ctx, state, pod, feasible)
	if status.IsSkip() {
		return nil
	}
	if !status.IsSuccess() {
		return status.AsError()
	}
	scores := make(fwk.NodeScoreList, len(feasible))
	p.handle.Parallelizer().Until(ctx, len(feasible), func(at int) {
		score, _ := p.Score(ctx, state, pod, feasible[at])
		scores[at] = fwk.NodeScore{Name: feasible[at].Node().Name, Score: score}
	}, "Score")
	return p.NormalizeScore(ctx, state, pod, scores).AsError()
}

func processCPU() float64 {
	var usage syscall.Rusage
	exitOn(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano()).Seconds()
}

func exitOn(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube-scheduler's plugin:", err)
		os.Exit(1)
	}
}
