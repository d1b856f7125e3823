module lynx.dev/tests/cluster/tools/definitions

go 1.25.0

require (
	github.com/cert-manager/cert-manager v1.19.1
	github.com/kedacore/keda/v2 v2.18.0
)
