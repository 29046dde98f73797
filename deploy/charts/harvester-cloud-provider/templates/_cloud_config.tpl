{{/*
Source of the kubeconfig for Harvester: the volume, the user that can read it, and the checksum that shows a change. Exactly one of secret and host path, in the order that values.yaml gives.
*/}}

{{/* The file on the host, or nothing when a Secret is used. Fails when there is neither. */}}
{{- define "hccm.cloudConfig.hostPath" -}}
{{- $config := .Values.cloudConfig | default dict -}}
{{- if not $config.secretName -}}
{{- .Values.cloudConfigPath | default $config.hostPath | required "no cloud-config: set cloudConfig.secretName (name of a Secret with the kubeconfig for Harvester), or cloudConfigPath or cloudConfig.hostPath (absolute path of that file on the nodes)" -}}
{{- end -}}
{{- end -}}

{{- define "hccm.cloudConfig.volume" -}}
{{- $config := .Values.cloudConfig | default dict -}}
{{- with include "hccm.cloudConfig.hostPath" . -}}
hostPath:
  path: {{ . }}
  type: File
{{- else -}}
secret:
  secretName: {{ $config.secretName }}
  defaultMode: 0440
  items:
    - key: {{ $config.secretKey | default "cloud-config" }}
      path: cloud-config
{{- end -}}
{{- end -}}

{{/* A Secret is mounted as a directory: as a single file it would never follow a change. */}}
{{- define "hccm.cloudConfig.mount" -}}
mountPath: {{ include "hccm.cloudConfig.hostPath" . | empty | ternary "/etc/kubernetes" "/etc/kubernetes/cloud-config" }}
readOnly: true
{{- end -}}

{{/* Only user 0 can read a host file that Rancher wrote (0600). It needs no capability for that: it is the owner. */}}
{{- define "hccm.podSecurityContext" -}}
{{- $computed := dict "runAsUser" 0 "runAsGroup" 0 -}}
{{- if not (include "hccm.cloudConfig.hostPath" .) -}}
{{- $computed = dict "runAsNonRoot" true "runAsUser" 65532 "runAsGroup" 65532 "fsGroup" 65532 -}}
{{- end -}}
{{- toYaml (mergeOverwrite $computed (deepCopy (.Values.podSecurityContext | default dict))) -}}
{{- end -}}

{{/* Changes with the source and, where the cluster can be asked, with the content of the Secret. */}}
{{- define "hccm.cloudConfig.checksum" -}}
{{- $config := .Values.cloudConfig | default dict -}}
{{- $content := include "hccm.cloudConfig.volume" . -}}
{{- with $config.secretName -}}
{{- $secret := lookup "v1" "Secret" $.Release.Namespace . -}}
{{- $content = printf "%s\n%s" $content (get ($secret.data | default dict) ($config.secretKey | default "cloud-config")) -}}
{{- end -}}
{{- sha256sum $content -}}
{{- end -}}
