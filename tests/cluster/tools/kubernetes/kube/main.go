// Command kube is every Kubernetes component that the tests need, in one program: it does what the name that it was
// called by says (a link kube-apiserver -> kube is an API server), or else what its first argument says.
//
// The components share nearly all of their code, so one program is linked in a fifth of the time and takes a fifth of
// the room that five programs would.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // for the time zones of CronJobs

	"github.com/spf13/cobra"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // for kubeconfigs that name one of them
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // for --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // for the components' metrics about their requests
	_ "k8s.io/component-base/metrics/prometheus/version"  // for the metric that gives the version
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// component makes one component's command. Only the one that is asked for may be made: each registers its own flags
// and feature gates for the whole process.
var component = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllermanager.NewControllerManagerCommand,
	"kube-proxy":              proxy.NewProxyCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	name := filepath.Base(os.Args[0])
	if name == "kube" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	if name == "kubectl" {
		// kubectl prints its errors itself, in its own way.
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			util.CheckErr(err)
		}
		return
	}
	command, known := component[name]
	if !known {
		fmt.Fprintf(os.Stderr, "kube: no component is called %q: call it as kubectl or one of %s.\n", name, names())
		os.Exit(64)
	}
	os.Exit(cli.Run(command()))
}

func names() string {
	var all []string
	for name := range component {
		all = append(all, name)
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}
