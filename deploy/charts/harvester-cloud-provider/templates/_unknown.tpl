{{/* Every value that this chart reads, by its path. A path with others below it is a map in which all keys are listed;
what is below any other is free. RKE2 and Rancher add keys to global. kube-vip.serviceAccount.create is not read: the
published charts bring it with kube-vip, as true. */}}
{{- define "hccm.knownValues" -}}
affinity cloudConfig cloudConfig.hostPath cloudConfig.secretKey cloudConfig.secretName cloudConfigPath controllers
deploymentAnnotations dnsPolicy extraArgs extraEnv extraVolumeMounts extraVolumes formerClusterNames fullnameOverride global
image image.digest image.pullPolicy image.repository image.tag imagePullSecrets
kube-vip kube-vip.affinity kube-vip.annotations kube-vip.config kube-vip.config.address kube-vip.enabled kube-vip.env
kube-vip.envFrom kube-vip.envValueFrom kube-vip.extraArgs kube-vip.extraLabels kube-vip.global kube-vip.hostAliases
kube-vip.image kube-vip.image.pullPolicy kube-vip.image.repository kube-vip.image.tag kube-vip.imagePullSecrets
kube-vip.nameOverride kube-vip.namespaceOverride kube-vip.nodeSelector kube-vip.podAnnotations kube-vip.podMonitor
kube-vip.podMonitor.annotations kube-vip.podMonitor.enabled kube-vip.podMonitor.labels kube-vip.podSecurityContext
kube-vip.priorityClassName kube-vip.resources kube-vip.runOn kube-vip.secretAccess kube-vip.securityContext
kube-vip.serviceAccount kube-vip.serviceAccount.create kube-vip.tolerations kube-vip.updateStrategy kube-vip.volumeMounts kube-vip.volumes
logLevel managementNetwork metrics
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
securityContext serviceAccount serviceAccount.annotations serviceAccount.create serviceAccount.name strategy
terminationGracePeriodSeconds tolerations topologySpreadConstraints
{{- end -}}

{{/* What was meant by values that other charts have, or that examples show in the wrong place. */}}
{{- define "hccm.meant" -}}
clusterName: global.cattle.clusterName
global.clusterName: global.cattle.clusterName
cattle: global.cattle
replicaCount: replicasCount
replicas: replicasCount
{{- end -}}

{{/* The values that have no effect, one a line, with what is to be written where that is known: the arguments are the
values and the path before each of them, with its dot. An empty one asks for nothing: values that are copied whole from
another chart have many. */}}
{{- define "hccm.unknownValues" -}}
{{- $before := index . 1 -}}
{{- $known := regexSplit "\\s+" (include "hccm.knownValues" .) -1 -}}
{{- $meant := include "hccm.meant" . | fromYaml -}}
{{- range $key, $value := index . 0 -}}
{{- $path := printf "%s%s" $before $key -}}
{{- if has (toJson $value) (list "null" "\"\"" "{}" "[]") -}}
{{- else if and (not (has $path $known)) (or (ne $before "global.") (hasKey $meant $path)) }}
{{ $path }}{{ with get $meant $path }} (write {{ . }}){{ end }}
{{- else if and (kindIs "map" $value) (or (eq $path "global") (regexMatch (printf "\\s%s\\." (regexQuoteMeta $path)) (include "hccm.knownValues" .))) -}}
{{- include "hccm.unknownValues" (list $value (printf "%s." $path)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
