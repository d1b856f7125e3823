{{/* The name of the operator's objects: lynx-operator for the release lynx. */}}
{{- define "lynx.operator" -}}
{{- printf "%s-operator" (.Release.Name | trunc 40 | trimSuffix "-") -}}
{{- end -}}

{{/* Objects outside of a namespace must not meet those of another installation. */}}
{{- define "lynx.clusterName" -}}
{{- printf "%s:%s" .Release.Namespace (include "lynx.operator" .) -}}
{{- end -}}

{{- define "lynx.selector" -}}
app.kubernetes.io/name: lynx-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "lynx.labels" -}}
{{ include "lynx.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: lynx
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* An image by digest where there is one, else by tag. Takes a list: the root, and the image's name in the values. */}}
{{- define "lynx.image" -}}
{{- $root := index . 0 -}}
{{- $image := index $root.Values.images (index . 1) -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default $root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "lynx.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "lynx.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "lynx.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- end -}}

{{/* What the operator may do where LynxDeployments are. */}}
{{- define "lynx.rules" -}}
- apiGroups: [lynx.dev]
  resources: [lynxdeployments]
  verbs: [get, list, watch, patch] # of both pools' replicas at once, where the spec asks for autoscaling
- apiGroups: [lynx.dev]
  resources: [lynxdeployments/status]
  verbs: [get, patch]
- apiGroups: [lynx.dev] # to own what it makes
  resources: [lynxdeployments/finalizers]
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps, services, serviceaccounts]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""] # agents' certificates, each Secret by its name
  resources: [secrets]
  verbs: [get, create, update, patch]
- apiGroups: [apps]
  resources: [deployments]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [""] # which pod goes first is an annotation
  resources: [pods]
  verbs: [get, list, watch, patch]
- apiGroups: [autoscaling, keda.sh] # whether others scale what the operator is to scale
  resources: [horizontalpodautoscalers, scaledobjects]
  verbs: [list]
- apiGroups: ["", events.k8s.io]
  resources: [events]
  verbs: [create, patch]
{{- end -}}
