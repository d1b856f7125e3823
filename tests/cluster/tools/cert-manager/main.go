// Command cert-manager is the part of cert-manager that the tests need: the controllers of Certificates and of the issuers that
// sign by themselves or by a CA. Of the project itself the controllers are one program with those that ask authorities on the
// internet, in a module that can't be fetched by its name.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"sync"

	"github.com/cert-manager/cert-manager/pkg/controller"
	"github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/approver"
	requestsca "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/ca"
	requestsselfsigned "github.com/cert-manager/cert-manager/pkg/controller/certificaterequests/selfsigned"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/issuing"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/keymanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/readiness"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/requestmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/revisionmanager"
	"github.com/cert-manager/cert-manager/pkg/controller/certificates/trigger"
	"github.com/cert-manager/cert-manager/pkg/controller/issuers"
	_ "github.com/cert-manager/cert-manager/pkg/issuer/ca"         // registers itself
	_ "github.com/cert-manager/cert-manager/pkg/issuer/selfsigned" // registers itself
)

var names = []string{
	approver.ControllerName,
	issuers.ControllerName,
	issuing.ControllerName,
	keymanager.ControllerName,
	readiness.ControllerName,
	requestmanager.ControllerName,
	requestsca.CRControllerName,
	requestsselfsigned.CRControllerName,
	revisionmanager.ControllerName,
	trigger.ControllerName,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "cert-manager:", err)
		os.Exit(1)
	}
}

// run serves the cluster that KUBECONFIG names until ctx is over.
func run(ctx context.Context) error {
	factory, err := controller.NewContextFactory(ctx, controller.ContextOptions{
		Kubeconfig:         os.Getenv("KUBECONFIG"),
		KubernetesAPIQPS:   50,
		KubernetesAPIBurst: 100,
	})
	if err != nil {
		return err
	}
	var running sync.WaitGroup
	for _, name := range names {
		one, err := controller.Known()[name](factory)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		running.Go(func() {
			if err := one.Run(1, ctx); err != nil {
				fmt.Fprintln(os.Stderr, name, err)
			}
		})
	}
	root, err := factory.Build()
	if err != nil {
		return err
	}
	root.SharedInformerFactory.Start(ctx.Done())
	root.KubeSharedInformerFactory.Start(ctx.Done())
	running.Wait()
	return nil
}
