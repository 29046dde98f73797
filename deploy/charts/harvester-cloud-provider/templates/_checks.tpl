{{/* Fails if the cluster would get another name than the values name in a place that older charts read. Also fails a new
installation with unknown values or without a cluster name: notes are not read under HelmChart objects, Argo CD or
Rancher. An upgrade continues, because it might come from a chart without these checks. */}}
{{- define "hccm.check" -}}
{{- $misplaced := .Values.clusterName | default (.Values.global).clusterName -}}
{{- if and $misplaced (ne (toString $misplaced) "kubernetes") (not (include "hccm.clusterName" .)) -}}
{{- fail (printf "clusterName is no value of this chart, nor of those from 0.1.12 on: a cluster that had one of these is called \"kubernetes\" in Harvester and keeps that name with global.cattle.clusterName=kubernetes. A new cluster, or one with an older chart: write global.cattle.clusterName=%v. To rename one from kubernetes: that and formerClusterNames={kubernetes}" $misplaced) -}}
{{- end -}}
{{- include "hccm.kubeVip.check" . -}}
{{- if .Release.IsInstall -}}
{{- with include "hccm.unknownValues" (list .Values "") | trim -}}
{{- fail (printf "unknown values, which would have no effect: %s" (splitList "\n" . | join ", ")) -}}
{{- end -}}
{{- if not (include "hccm.clusterName" .) -}}
{{- fail "global.cattle.clusterName is not set. Set it to the name of the cluster in Rancher and in Harvester: load balancers are named and owned by it. A cluster that already has load balancers without such a name keeps them with the name kubernetes" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Every value of the chart by its path. A path with others below it is a map of which all keys are listed; any other
map can have any key. global and kube-vip are not checked: RKE2, Rancher and older charts have more keys there. hccm.check
rejects clusterName by itself. */}}
{{- define "hccm.knownValues" -}}
affinity announcer cloudConfig cloudConfig.hostPath cloudConfig.secretKey cloudConfig.secretName cloudConfigPath clusterName
controllers
deploymentAnnotations dnsPolicy extraArgs extraEnv extraVolumeMounts extraVolumes formerClusterNames fullnameOverride global
image image.digest image.pullPolicy image.repository image.tag imagePullSecrets kube-vip logLevel managementNetwork metrics
metrics.dashboard metrics.dashboard.annotations metrics.dashboard.enabled metrics.dashboard.labels metrics.dashboard.namespace
metrics.podMonitor metrics.podMonitor.annotations metrics.podMonitor.authorization metrics.podMonitor.enabled
metrics.podMonitor.interval metrics.podMonitor.labels metrics.podMonitor.tlsConfig
metrics.prometheusRule metrics.prometheusRule.annotations metrics.prometheusRule.enabled metrics.prometheusRule.labels
metrics.serviceMonitor metrics.serviceMonitor.annotations metrics.serviceMonitor.authorization
metrics.serviceMonitor.bearerTokenFile metrics.serviceMonitor.enabled metrics.serviceMonitor.interval
metrics.serviceMonitor.labels metrics.serviceMonitor.tlsConfig
nameOverride nodeExcludeIPRanges nodeIPCIDR nodeSelector podAnnotations podDisruptionBudget
podDisruptionBudget.enabled podDisruptionBudget.maxUnavailable podLabels podSecurityContext priorityClassName probes
probes.liveness probes.readiness probes.startup rbac rbac.create rbac.endpointSlices rbac.nodeDeletion replicasCount resources
securityContext serviceAccount serviceAccount.annotations serviceAccount.create serviceAccount.name sharedAddressScope
strategy terminationGracePeriodSeconds tolerations topologySpreadConstraints
{{- end -}}

{{/* Names that other charts use, and the name here. */}}
{{- define "hccm.meant" -}}
cattle: global.cattle
replicaCount: replicasCount
replicas: replicasCount
{{- end -}}

{{/* The unknown values, one per line. The arguments are a map and the path before its keys, with a dot. Empty values are
skipped: values that are copied from another chart have many. */}}
{{- define "hccm.unknownValues" -}}
{{- $before := index . 1 -}}
{{- $known := regexSplit "\\s+" (include "hccm.knownValues" .) -1 -}}
{{- range $key, $value := index . 0 -}}
{{- $path := printf "%s%s" $before $key -}}
{{- if has (toJson $value) (list "null" "\"\"" "{}" "[]") -}}
{{- else if not (has $path $known) }}
{{ $path }}{{ with get (include "hccm.meant" . | fromYaml) $path }} (write {{ . }}){{ end }}
{{- else if and (kindIs "map" $value) (regexMatch (printf "\\s%s\\." (regexQuoteMeta $path)) (include "hccm.knownValues" .)) -}}
{{- include "hccm.unknownValues" (list $value (printf "%s." $path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
