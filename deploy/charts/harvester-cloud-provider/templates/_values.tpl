{{/*
Values that cannot work, one sentence per line. The schema checks types and the words of enumerations; what a text has to
look like is checked here, because the schema could only print the pattern. Empty values are the defaults.
*/}}
{{- define "hccm.invalidValues" -}}
{{- include "hccm.invalidImages" . -}}
{{- include "hccm.invalidSources" . -}}
{{- include "hccm.invalidNetworks" . -}}
{{- include "hccm.invalidNames" . -}}
{{- include "hccm.invalidPod" . -}}
{{- include "hccm.invalidMonitoring" . -}}
{{- end -}}

{{/* A line for a text that does not match. The arguments: path, value, pattern, what is expected. */}}
{{- define "hccm.mustMatch" -}}
{{- $text := kindIs "invalid" (index . 1) | ternary "" (index . 1 | toString) -}}
{{- if and $text (not (regexMatch (index . 2) $text)) }}
{{ index . 0 }} is {{ $text | quote }}. Expected: {{ index . 3 }}
{{- end -}}
{{- end -}}

{{- define "hccm.invalidImages" -}}
{{- $repository := "^([A-Za-z0-9.-]+(:[0-9]+)?/)?[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$" -}}
{{- $repositoryText := "the name of an image without scheme, tag and digest, such as registry.example.org/team/name. Tag and digest have keys of their own" -}}
{{- $tag := "^[A-Za-z0-9_][-A-Za-z0-9_.]{0,127}$" -}}
{{- $tagText := "a tag: at most 128 letters, digits, '_', '-' and '.', without a name before it" -}}
{{- $image := .Values.image | default dict -}}
{{- include "hccm.mustMatch" (list "image.repository" $image.repository $repository $repositoryText) -}}
{{- include "hccm.mustMatch" (list "image.tag" $image.tag $tag $tagText) -}}
{{- include "hccm.mustMatch" (list "image.digest" $image.digest "^sha256:[0-9a-f]{64}$" "sha256: and 64 hexadecimal digits") -}}
{{- $kubeVip := (index .Values "kube-vip" | default dict).image | default dict -}}
{{- include "hccm.mustMatch" (list "kube-vip.image.repository" $kubeVip.repository $repository $repositoryText) -}}
{{- include "hccm.mustMatch" (list "kube-vip.image.tag" $kubeVip.tag $tag $tagText) -}}
{{- $global := .Values.global | default dict -}}
{{- $registry := "^(\\[[0-9A-Fa-f:]+\\]|[A-Za-z0-9.-]+)(:[0-9]+)?(/[a-z0-9._-]+)*/?$" -}}
{{- $registryText := "a registry as host, host:port or host/path, without a scheme such as https://" -}}
{{- include "hccm.mustMatch" (list "global.systemDefaultRegistry" $global.systemDefaultRegistry $registry $registryText) -}}
{{- include "hccm.mustMatch" (list "global.cattle.systemDefaultRegistry" ($global.cattle | default dict).systemDefaultRegistry $registry $registryText) -}}
{{- range $path, $secrets := dict "imagePullSecrets" .Values.imagePullSecrets "global.imagePullSecrets" $global.imagePullSecrets -}}
{{- range $secrets | default list -}}
{{- if and (kindIs "map" .) (not .name) }}
{{ $path }} has an entry without a name. Expected: names of Secrets, each as text or as name: NAME
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hccm.invalidSources" -}}
{{- $pathText := "an absolute path on the nodes, which starts with /" -}}
{{- $config := .Values.cloudConfig | default dict -}}
{{- include "hccm.mustMatch" (list "cloudConfigPath" .Values.cloudConfigPath "^/." $pathText) -}}
{{- include "hccm.mustMatch" (list "cloudConfig.hostPath" $config.hostPath "^/." $pathText) -}}
{{- include "hccm.mustMatch" (list "cloudConfig.secretName" $config.secretName (include "hccm.objectName" .) (printf "the name of a Secret in namespace %s, without the namespace: a-z, 0-9, '-' and '.'" .Release.Namespace)) -}}
{{- include "hccm.mustMatch" (list "cloudConfig.secretKey" $config.secretKey "^[-._A-Za-z0-9]+$" "a key of that Secret: letters, digits, '-', '_' and '.'") -}}
{{- end -}}

{{- define "hccm.invalidNetworks" -}}
{{- include "hccm.mustMatch" (list "managementNetwork" .Values.managementNetwork "^[^/]+(/[^/]+)?$" "a network of Harvester as namespace/name") -}}
{{- $range := include "hccm.addressRange" . -}}
{{- include "hccm.mustMatch" (list "nodeIPCIDR" .Values.nodeIPCIDR (printf "^\\s*%s\\s*(,\\s*%s\\s*)?,?\\s*$" $range $range) "at most one IPv4 and one IPv6 range, separated by a comma, such as 192.0.2.0/24,2001:db8::/64") -}}
{{- range .Values.nodeExcludeIPRanges | default list -}}
{{- include "hccm.mustMatch" (list "an item of nodeExcludeIPRanges" . (printf "^\\s*%s(\\s*,\\s*%s)*\\s*$" $range $range) "an address or a range, such as 192.0.2.250 or 198.51.100.0/24") -}}
{{- end -}}
{{- end -}}

{{/* The pattern of an address or a range in CIDR notation. */}}
{{- define "hccm.addressRange" -}}
([0-9]{1,3}(\.[0-9]{1,3}){3}(/([0-9]|[12][0-9]|3[0-2]))?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(%[^/,\s]+)?(/([0-9]|[1-9][0-9]|1[01][0-9]|12[0-8]))?)
{{- end -}}

{{/* The pattern of the name of an object of Kubernetes. */}}
{{- define "hccm.objectName" -}}
^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$
{{- end -}}

{{- define "hccm.invalidNames" -}}
{{- $text := "a name of a-z, 0-9, '-' and '.' that starts and ends with a letter or digit" -}}
{{- include "hccm.mustMatch" (list "nameOverride" .Values.nameOverride "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" "a name of a-z, 0-9 and '-' that starts and ends with a letter or digit") -}}
{{- include "hccm.mustMatch" (list "fullnameOverride" .Values.fullnameOverride (include "hccm.objectName" .) $text) -}}
{{- include "hccm.mustMatch" (list "serviceAccount.name" (.Values.serviceAccount | default dict).name (include "hccm.objectName" .) $text) -}}
{{- include "hccm.mustMatch" (list "priorityClassName" .Values.priorityClassName (include "hccm.objectName" .) $text) -}}
{{- $kubeVip := index .Values "kube-vip" | default dict -}}
{{- include "hccm.mustMatch" (list "kube-vip.priorityClassName" $kubeVip.priorityClassName (include "hccm.objectName" .) $text) -}}
{{- end -}}

{{- define "hccm.invalidPod" -}}
{{- include "hccm.mustMatch" (list "replicasCount" .Values.replicasCount "^[0-9]+$" "a whole number, such as 1 or 2") -}}
{{- include "hccm.mustMatch" (list "logLevel" .Values.logLevel "^([0-9]|10)$" "a whole number from 0 to 10") -}}
{{- include "hccm.mustMatch" (list "podDisruptionBudget.maxUnavailable" (.Values.podDisruptionBudget | default dict).maxUnavailable "^[0-9]+%?$" "a number of pods or a percentage, such as 1 or 50%") -}}
{{- range $name, $probe := .Values.probes | default dict -}}
{{- include "hccm.mustMatch" (list (printf "probes.%s.path" $name) ($probe | default dict).path "^/" "a path that starts with /, such as /livez") -}}
{{- end -}}
{{- $quantity := "^([0-9]+\\.?[0-9]*|\\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$" -}}
{{- $kubeVip := index .Values "kube-vip" | default dict -}}
{{- range $path, $resources := dict "resources" .Values.resources "kube-vip.resources" $kubeVip.resources -}}
{{- range $kind, $amounts := pick ($resources | default dict) "requests" "limits" -}}
{{- range $name, $amount := $amounts | default dict -}}
{{- include "hccm.mustMatch" (list (printf "%s.%s.%s" $path $kind $name) $amount $quantity "a quantity of Kubernetes, such as 100m for CPU or 256Mi for memory") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "hccm.invalidMonitoring" -}}
{{- $metrics := .Values.metrics | default dict -}}
{{- range $name := list "serviceMonitor" "podMonitor" -}}
{{- include "hccm.mustMatch" (list (printf "metrics.%s.interval" $name) (get $metrics $name | default dict).interval "^([0-9]+(ms|[smhdwy]))+$" "a duration of Prometheus, such as 30s or 1m") -}}
{{- end -}}
{{- include "hccm.mustMatch" (list "metrics.dashboard.namespace" ($metrics.dashboard | default dict).namespace "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" "the name of a namespace: a-z, 0-9 and '-'") -}}
{{- end -}}
