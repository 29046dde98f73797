{{/* Name of all objects. */}}
{{- define "hccm-kube-vip.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "hccm-kube-vip.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{- define "hccm-kube-vip.selectorLabels" -}}
app.kubernetes.io/name: {{ include "hccm-kube-vip.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hccm-kube-vip.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "hccm-kube-vip.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The port of the metrics, where they are monitored. */}}
{{- define "hccm-kube-vip.monitoredPort" -}}
{{- $server := get (.Values.env | default dict) "prometheus_server" | toString -}}
{{- if and .Values.podMonitor.enabled (regexMatch "^:[0-9]+$" $server) }}{{ trimPrefix ":" $server }}{{ end -}}
{{- end -}}
