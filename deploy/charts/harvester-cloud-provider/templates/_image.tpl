{{/* The registry in front of every image, with its slash, or nothing. Takes any scope with .Values.global. */}}
{{- define "hccm.registry" -}}
{{- $global := .Values.global | default dict -}}
{{- $cattle := $global.cattle | default dict -}}
{{- with $cattle.systemDefaultRegistry | default $global.systemDefaultRegistry -}}
{{- trimSuffix "/" (toString .) }}/
{{- end -}}
{{- end -}}

{{/* The image. Values that name a release of the Go provider come from its chart: fail, because the ClusterRole of this
chart is too narrow for it. The Go provider's tags are vX.Y.Z, the tags of harvester-ccm end in -ccm. */}}
{{- define "hccm.image" -}}
{{- $image := .Values.image | default dict -}}
{{- $tag := toString ($image.tag | default "") -}}
{{- if not $image.repository -}}
{{- fail (printf "image.repository is not set. No image of harvester-ccm is published yet: build and push one (make image), then set image.repository to its name, and image.tag if its tag is not %s-ccm" .Chart.AppVersion) -}}
{{- end -}}
{{- if and (not $image.digest) (eq (base $image.repository) "harvester-cloud-provider") (regexMatch "^(|v[0-9]+\\.[0-9]+\\.[0-9]+(-rc[0-9.]*)?|.*-head)$" $tag) -}}
{{- fail (printf "image %s%s is the Go provider's, but this chart is for harvester-ccm. Upgrade with --reset-then-reuse-values, not with --reuse-values, and set image.repository to your image of harvester-ccm and image.tag to null. If your registry has harvester-ccm under the Go provider's name, set image.tag to its tag there (those of harvester-ccm end in -ccm) or set image.digest" $image.repository (empty $tag | ternary " without image.tag" (printf ":%s" $tag))) -}}
{{- end -}}
{{- include "hccm.registry" . }}{{ $image.repository }}:{{ $tag | default (printf "%s-ccm" .Chart.AppVersion) }}
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
