{{/* The command line, one argument per line as YAML. The first two keep the places they have always had. */}}
{{- define "hccm.args" -}}
- --cloud-config=/etc/kubernetes/cloud-config
{{- with (((.Values.global).cattle).clusterName) }}
- {{ printf "--cluster-name=%v" . | quote }}
{{- end }}
{{- with .Values.formerClusterNames }}
- {{ printf "--former-cluster-names=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.managementNetwork }}
- {{ printf "--management-network=%v" . | quote }}
{{- end }}
{{- with .Values.nodeIPCIDR }}
- {{ printf "--node-ip-cidr=%v" . | quote }}
{{- end }}
{{- with .Values.nodeExcludeIPRanges }}
- {{ printf "--node-exclude-ip-ranges=%s" (join "," .) | quote }}
{{- end }}
{{- with .Values.sharedAddressScope }}
- {{ printf "--shared-address-scope=%v" . | quote }}
{{- end }}
{{- with include "hccm.announcer" . }}
- {{ printf "--announcer=%s" . | quote }}
{{- end }}
{{- if eq (include "hccm.kubeVip.mode" .) "required" }}
- --require-load-balancer-class
{{- end }}
{{- with .Values.controllers }}
- {{ printf "--controllers=%s" (join "," .) | quote }}
{{- end }}
{{- if not (or (kindIs "invalid" .Values.logLevel) (eq (toString .Values.logLevel) "")) }}
- {{ printf "--v=%v" .Values.logLevel | quote }}
{{- end }}
{{- $open := false }}
{{- range .Values.extraArgs | default list | compact }}
{{- $word := trim . }}
{{- if and (not $open) (not (hasPrefix "-" $word)) }}
{{- fail (printf "extraArgs: %q is not a flag. Write each flag as --name=value" $word) }}
{{- end }}
{{- if regexMatch "^-[^=\\s]*(=\\S*)?\\s+-" $word }}
{{- fail (printf "extraArgs: %q has more than one flag: write one per item" $word) }}
{{- end }}
{{- if regexMatch "^-[^=\\s]+\\s" $word }}
{{- fail (printf "extraArgs: %q has a flag and its value in one item: write --name=value" $word) }}
{{- end }}
{{- if or (not $open) (hasPrefix "--" $word) }}
{{- include "hccm.checkFlag" (list $ $word) }}
{{- end }}
{{- $open = regexMatch "^--?[^=]+$" $word }}
- {{ $word | quote }}
{{- end }}
{{- end -}}

{{/* Fails if an argument starts with a flag that the controller does not have: its container would exit again and again.
The arguments: root scope, argument. */}}
{{- define "hccm.checkFlag" -}}
{{- $root := index . 0 -}}
{{- $name := regexReplaceAll "=.*" (index . 1) "" -}}
{{- $known := $root.Files.Lines "files/flags.txt" -}}
{{- $isShort := and (regexMatch "^-[a-z]" $name) (has (substr 0 2 $name) $known) -}}
{{- if not (or (eq $name "--") $isShort (has $name $known)) -}}
{{- $meant := "docs/reference/flags.md lists the flags" -}}
{{- range $known -}}
{{- if and . (eq (replace "-" "" .) ($name | lower | replace "_" "" | replace "-" "")) -}}
{{- $meant = printf "write %s" . -}}
{{- end -}}
{{- end -}}
{{- fail (printf "extraArgs: harvester-ccm %s has no flag %s: %s" $root.Chart.AppVersion $name $meant) -}}
{{- end -}}
{{- end -}}

{{/* A sentence for each item of extraArgs with quotes around its value. Only a shell removes them. */}}
{{- define "hccm.quotedArgs" -}}
{{- range .Values.extraArgs | default list | compact -}}
{{- $word := trim . -}}
{{- if regexMatch "^-[^=]*=(\".*\"|'.*')$" $word }}
extraArgs: {{ $word }} has quotes around its value, which no shell removes: write {{ regexReplaceAll "[\"']" $word "" }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of the cluster in Harvester, or nothing where none is given. The controller removes quotes and spaces. */}}
{{- define "hccm.clusterName" -}}
{{- include "hccm.flag" (list . "cluster-name" (((.Values.global).cattle).clusterName | default "")) | trimAll " \t\n\r\"'`" -}}
{{- end -}}

{{/* The value that extraArgs gives a flag, in one item or in two, or its default: the arguments are the root scope, the
name, the default. */}}
{{- define "hccm.flag" -}}
{{- $flag := printf "--%s" (index . 1) -}}
{{- $value := index . 2 -}}
{{- $before := "" -}}
{{- range (index . 0).Values.extraArgs | default list | compact -}}
{{- $word := trim . -}}
{{- if eq $before $flag -}}
{{- $value = $word -}}
{{- else if hasPrefix (printf "%s=" $flag) $word -}}
{{- $value = trimPrefix (printf "%s=" $flag) $word -}}
{{- end -}}
{{- $before = $word -}}
{{- end -}}
{{- $value -}}
{{- end -}}

{{/* The port of probes and metrics, or nothing where it is switched off. */}}
{{- define "hccm.securePort" -}}
{{- $port := include "hccm.flag" (list . "secure-port" "10258") -}}
{{- if ne $port "0" }}{{ $port }}{{ end -}}
{{- end -}}

{{/* A probe: the arguments are the root scope and the values of the probe. */}}
{{- define "hccm.probe" -}}
{{- $root := index . 0 -}}
{{- $probe := index . 1 -}}
{{- $address := include "hccm.flag" (list $root "bind-address" "0.0.0.0") -}}
httpGet:
  scheme: HTTPS
  port: https
  path: {{ $probe.path }}
  {{- if not (has $address (list "" "0.0.0.0" "::")) }}
  host: {{ $address | quote }}
  {{- end }}
{{ toYaml (omit $probe "path") }}
{{- end -}}
