{{/* The registry in front of every image, with its slash, or nothing. Takes any scope with .Values.global. */}}
{{- define "hccm.registry" -}}
{{- $global := .Values.global | default dict -}}
{{- $cattle := $global.cattle | default dict -}}
{{- with $cattle.systemDefaultRegistry | default $global.systemDefaultRegistry -}}
{{- trimSuffix "/" (toString .) }}/
{{- end -}}
{{- end -}}

{{/* The image. A release of the Go provider is refused: values that still name it come from its chart, and the rights
here are not those that it needs. Its tags are vX.Y.Z; the ones of this program end in -ccm, so neither stands for the
other in a registry that has both under one name. */}}
{{- define "hccm.image" -}}
{{- $ours := "harvester/harvester-ccm" -}}
{{- $image := .Values.image | default dict -}}
{{- $repository := $image.repository | default $ours -}}
{{- $tag := toString ($image.tag | default "") -}}
{{- if not $image.digest -}}
{{- $named := eq (base $repository) "harvester-cloud-provider" -}}
{{- if or (and $named (empty $tag)) (and (or $named (eq $repository $ours)) (regexMatch "^(v[0-9]+\\.[0-9]+\\.[0-9]+(-rc[0-9.]*)?|.*-head)$" $tag)) -}}
{{- fail (printf "image %s%s is the Go provider's, but this chart is for harvester-ccm. Upgrade with --reset-then-reuse-values, not with --reuse-values, and take image.repository and image.tag out of your values (--set image.repository=null --set image.tag=null). Where your registry has harvester-ccm under that name, set image.tag to its tag there (those of harvester-ccm end in -ccm) or image.digest" $repository (empty $tag | ternary " without image.tag" (printf ":%s" $tag))) -}}
{{- end -}}
{{- end -}}
{{- include "hccm.registry" . }}{{ $repository }}:{{ $tag | default (printf "%s-ccm" .Chart.AppVersion) }}
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
