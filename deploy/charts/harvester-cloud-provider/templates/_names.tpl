{{/* Name in labels, in the selector and of the container. The selector of a Deployment can never change. */}}
{{- define "hccm.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* Name of the objects. Without the release's name, as other products look for it. */}}
{{- define "hccm.fullname" -}}
{{- .Values.fullnameOverride | default (include "hccm.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "hccm.serviceAccountName" -}}
{{- $account := .Values.serviceAccount | default dict -}}
{{- $own := ternary (include "hccm.fullname" .) "default" (eq (include "hccm.isOn" (list $account "create")) "yes") -}}
{{- $account.name | default $own -}}
{{- end -}}

{{/* "yes" unless a switch that is on by default was set to false. The arguments are the values and the key. null
means the default. */}}
{{- define "hccm.isOn" -}}
{{- $value := get ((index . 0) | default dict) (index . 1) -}}
{{- if ne (toString $value) "false" }}yes{{ end -}}
{{- end -}}

{{- define "hccm.selectorLabels" -}}
app.kubernetes.io/name: {{ include "hccm.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "hccm.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "hccm.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* Annotations as YAML. Kubernetes takes text only, so a number or a switch becomes its text. */}}
{{- define "hccm.annotations" -}}
{{- range $name, $value := . }}
{{ $name }}: {{ $value | quote }}
{{- end -}}
{{- end -}}
