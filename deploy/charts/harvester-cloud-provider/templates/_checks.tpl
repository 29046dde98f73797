{{/* Fails if a value cannot work, if the image or the source of the kubeconfig is missing, or if the cluster would get
another name than the values name in a place that older charts read. A new installation also fails in the cases of
hccm.checkInstallation: notes are not read under HelmChart objects, Argo CD or Rancher. An upgrade continues in these,
because it might come from a chart without the checks. */}}
{{- define "hccm.check" -}}
{{- with include "hccm.invalidValues" . | trim -}}
{{- fail (printf "these values are invalid:\n%s" .) -}}
{{- end -}}
{{- $misplaced := include "hccm.misplacedClusterName" . -}}
{{- if and $misplaced (not (include "hccm.clusterName" .)) -}}
{{- fail (printf "clusterName is not a value of this chart: set global.cattle.clusterName=%v. If a chart from 0.1.12 on installed this cluster, its load balancers belong to \"kubernetes\": also set formerClusterNames={kubernetes}, or keep the name with global.cattle.clusterName=kubernetes" $misplaced) -}}
{{- end -}}
{{- include "hccm.kubeVip.check" . -}}
{{- $_ := include "hccm.image" . -}}
{{- $_ := include "hccm.cloudConfig.hostPath" . -}}
{{- $_ := include "hccm.args" . -}}
{{- if .Release.IsInstall -}}
{{- include "hccm.checkInstallation" . -}}
{{- end -}}
{{- end -}}

{{/* The name of the cluster at a place that older charts read; nothing without one, or for the default of these charts. */}}
{{- define "hccm.misplacedClusterName" -}}
{{- $name := .Values.clusterName | default (.Values.global).clusterName | default "" | toString -}}
{{- if ne $name "kubernetes" }}{{ $name }}{{ end -}}
{{- end -}}

{{/* Fails with unknown values, without a name of the cluster or with one that Harvester rejects, and without a replica. */}}
{{- define "hccm.checkInstallation" -}}
{{- with include "hccm.unknownValues" (list .Values "") | trim -}}
{{- fail (printf "unknown values, which would have no effect: %s" (splitList "\n" . | join ", ")) -}}
{{- end -}}
{{- with include "hccm.quotedArgs" . | trim -}}
{{- fail . -}}
{{- end -}}
{{- $name := include "hccm.clusterName" . -}}
{{- if not $name -}}
{{- fail "global.cattle.clusterName is not set. Set it to the name of the cluster in Rancher and in Harvester: load balancers are named and owned by it. A cluster that already has load balancers without such a name keeps them with the name kubernetes" -}}
{{- end -}}
{{- $isLabel := and (le (len $name) 63) (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$" $name) -}}
{{- if not $isLabel -}}
{{- fail (printf "the name of the cluster is %q, but Harvester would reject every load balancer, because their names contain it. Set global.cattle.clusterName to at most 63 of a-z, 0-9 and '-', with a letter or digit at both ends" $name) -}}
{{- end -}}
{{- $misplaced := include "hccm.misplacedClusterName" . -}}
{{- if and $misplaced (ne $misplaced $name) -}}
{{- fail (printf "clusterName is %s, but the cluster would be called %s: this chart reads only global.cattle.clusterName. Set that to the right name, and remove clusterName" $misplaced $name) -}}
{{- end -}}
{{- if eq (toString .Values.replicasCount) "0" -}}
{{- fail "replicasCount is 0, so no controller would run: Nodes would stay uninitialized, and no Service would get an address. Write 1, or 2 for a replica that takes over" -}}
{{- end -}}
{{- end -}}

{{/* Every value of the chart by its path. A path with others below it is a map of which all keys are listed; any other
map can have any key. global and kube-vip are not checked: RKE2, Rancher and older charts have more keys there. hccm.check
rejects clusterName by itself. */}}
{{- define "hccm.knownValues" -}}
affinity announcer cloudConfig cloudConfig.hostPath cloudConfig.secretKey cloudConfig.secretName cloudConfigPath clusterName
controllers
deploymentAnnotations dnsPolicy extraArgs extraEnv extraVolumeMounts extraVolumes formerClusterNames fullnameOverride global
image image.digest image.pullPolicy image.repository image.tag imagePullSecrets kube-vip kubeVipPolicy logLevel managementNetwork metrics
metrics.dashboard metrics.dashboard.annotations metrics.dashboard.enabled metrics.dashboard.labels metrics.dashboard.namespace
metrics.enabled
metrics.podMonitor metrics.podMonitor.annotations metrics.podMonitor.authorization metrics.podMonitor.enabled
metrics.podMonitor.interval metrics.podMonitor.labels metrics.podMonitor.tlsConfig
metrics.prometheusRule metrics.prometheusRule.annotations metrics.prometheusRule.enabled metrics.prometheusRule.labels
metrics.serviceMonitor metrics.serviceMonitor.annotations metrics.serviceMonitor.authorization
metrics.serviceMonitor.bearerTokenFile metrics.serviceMonitor.enabled metrics.serviceMonitor.interval
metrics.serviceMonitor.labels metrics.serviceMonitor.tlsConfig
nameOverride nodeExcludeIPRanges nodeIPCIDR nodeSelector podAnnotations podDisruptionBudget
podDisruptionBudget.enabled podDisruptionBudget.maxUnavailable podLabels podSecurityContext priorityClassName probes
probes.liveness probes.liveness.failureThreshold probes.liveness.initialDelaySeconds probes.liveness.path
probes.liveness.periodSeconds probes.liveness.successThreshold probes.liveness.terminationGracePeriodSeconds
probes.liveness.timeoutSeconds
probes.readiness probes.readiness.failureThreshold probes.readiness.initialDelaySeconds probes.readiness.path
probes.readiness.periodSeconds probes.readiness.successThreshold probes.readiness.terminationGracePeriodSeconds
probes.readiness.timeoutSeconds
probes.startup probes.startup.failureThreshold probes.startup.initialDelaySeconds probes.startup.path
probes.startup.periodSeconds probes.startup.successThreshold probes.startup.terminationGracePeriodSeconds
probes.startup.timeoutSeconds
rbac rbac.create rbac.endpointSlices rbac.nodeDeletion replicasCount resources resources.claims
resources.limits resources.requests securityContext serviceAccount serviceAccount.annotations serviceAccount.create serviceAccount.name sharedAddressScope
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
