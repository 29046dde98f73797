{{/* The registry in front of every image, with its slash, or nothing. Takes any scope with .Values.global. */}}
{{- define "hccm.registry" -}}
{{- $global := .Values.global | default dict -}}
{{- $cattle := $global.cattle | default dict -}}
{{- with $cattle.systemDefaultRegistry | default $global.systemDefaultRegistry -}}
{{- trimSuffix "/" (toString .) }}/
{{- end -}}
{{- end -}}

{{- define "hccm.image" -}}
{{- $image := .Values.image | default dict -}}
{{- include "hccm.registry" . }}{{ $image.repository | default "harvester/harvester-ccm" }}:{{ $image.tag | default .Chart.AppVersion }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{/* The chart's own and the global pull secrets, as a list of {name: ...}, each once. */}}
{{- define "hccm.imagePullSecrets" -}}
{{- $global := .Values.global | default dict -}}
{{- $names := list -}}
{{- range concat (.Values.imagePullSecrets | default list) ($global.imagePullSecrets | default list) -}}
{{- if kindIs "map" . -}}
{{- $names = append $names .name -}}
{{- else -}}
{{- $names = append $names . -}}
{{- end -}}
{{- end -}}
{{- range $names | uniq | compact }}
- name: {{ . }}
{{- end -}}
{{- end -}}
