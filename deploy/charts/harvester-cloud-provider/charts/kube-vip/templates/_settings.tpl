{{/*
Settings of kube-vip, as it reads them: env takes precedence over a flag in extraArgs, and a flag over kube-vip's default.
*/}}

{{/* The value of a setting. "unknown": the pod reads it from a Secret, a ConfigMap or a file. kube-vip takes an empty
variable for one that is not set, except lb_class_name. The arguments: root scope, name in env, name of the flag, default. */}}
{{- define "hccm-kube-vip.setting" -}}
{{- $values := (index . 0).Values -}}
{{- $name := index . 1 -}}
{{- $flag := index . 2 -}}
{{- $env := $values.env | default dict -}}
{{- $flags := $values.extraArgs | default dict -}}
{{- $value := get $env $name | toString -}}
{{- $isSet := or (eq $name "lb_class_name") (not (has $value (list "" "<nil>"))) -}}
{{- if hasKey ($values.envValueFrom | default dict) $name -}}
unknown
{{- else if and (hasKey $env $name) $isSet -}}
{{- $value -}}
{{- else if or $values.envFrom (hasKey $flags "config-file") -}}
unknown
{{- else if hasKey $flags $flag -}}
{{- kindIs "invalid" (get $flags $flag) | ternary "true" (get $flags $flag | toString) -}}
{{- else -}}
{{- index . 3 -}}
{{- end -}}
{{- end -}}

{{/* "yes" if a switch is on, in the spellings that kube-vip takes. The arguments are those of a setting. */}}
{{- define "hccm-kube-vip.isOn" -}}
{{- if has (include "hccm-kube-vip.setting" . | lower) (list "true" "t" "1") }}yes{{ end -}}
{{- end -}}

{{/* "yes" if a switch is off. One with an unknown value is neither on nor off. */}}
{{- define "hccm-kube-vip.isOff" -}}
{{- if has (include "hccm-kube-vip.setting" . | lower) (list "false" "f" "0") }}yes{{ end -}}
{{- end -}}

{{/* The class that kube-vip serves by default. */}}
{{- define "hccm-kube-vip.defaultClass" -}}
kube-vip.io/kube-vip-class
{{- end -}}

{{/* "yes" if the value harvesterClass sets the class that kube-vip serves. */}}
{{- define "hccm-kube-vip.setsClass" -}}
{{- if ne (.Values.harvesterClass | default "none") "none" }}yes{{ end -}}
{{- end -}}

{{/* The only class that kube-vip serves. */}}
{{- define "hccm-kube-vip.class" -}}
{{- if include "hccm-kube-vip.setsClass" . -}}
{{- include "hccm.loadBalancerClass" . -}}
{{- else -}}
{{- include "hccm-kube-vip.setting" (list . "lb_class_name" "lbClassName" (include "hccm-kube-vip.defaultClass" .)) -}}
{{- end -}}
{{- end -}}

{{/* Why kube-vip serves no Service without a class; nothing if it serves them, or if that is unknown. */}}
{{- define "hccm-kube-vip.servesOnlyItsClass" -}}
{{- $handling := list . "lb_class_legacy_handling" "lbClassNameLegacyHandling" "true" -}}
{{- if include "hccm-kube-vip.isOff" $handling -}}
{{- if include "hccm-kube-vip.class" . }}lb_class_legacy_handling is off{{ end -}}
{{- else if include "hccm-kube-vip.isOn" (list . "lb_class_only" "lbClassOnly" "false") -}}
lb_class_only is on
{{- end -}}
{{- end -}}

{{/* "yes" if kube-vip notes its node on each Service that it announces: in ARP mode. In BGP mode, only since 1.0.3. */}}
{{- define "hccm-kube-vip.notesItsNode" -}}
{{- $isArp := include "hccm-kube-vip.isOn" (list . "vip_arp" "arp" "false") -}}
{{- $servesServices := include "hccm-kube-vip.isOn" (list . "svc_enable" "services" "false") -}}
{{- $noBgp := include "hccm-kube-vip.isOff" (list . "bgp_enable" "bgp" "false") -}}
{{- $noRoutingTable := include "hccm-kube-vip.isOff" (list . "vip_routingtable" "table" "false") -}}
{{- $noWireGuard := include "hccm-kube-vip.isOff" (list . "vip_wireguard" "wireguard" "false") -}}
{{- $writes := include "hccm-kube-vip.isOff" (list . "disable_service_updates" "disableServiceUpdates" "false") -}}
{{- if and $isArp $servesServices $noBgp $noRoutingTable $noWireGuard $writes }}yes{{ end -}}
{{- end -}}
