// Command coredns is CoreDNS with the plugins that a closed cluster's own names need, and no others: the cloud
// providers' are most of its compile time.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

// A request passes the plugins in this order, whatever the order in the configuration.
func init() {
	dnsserver.Directives = []string{"bind", "health", "ready", "errors", "cache", "kubernetes"}
}

func main() {
	coremain.Run()
}
