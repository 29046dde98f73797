{{/*
The controller and the kube-vip of this chart: which program announces addresses, and of which Services. The scope of the
kube-vip chart is in .Subcharts, unless kube-vip.enabled is false.
*/}}

{{/* The spec.loadBalancerClass of this controller. */}}
{{- define "hccm.loadBalancerClass" -}}
cloudprovider.harvesterhci.io/harvester
{{- end -}}

{{/* The value of --announcer; nothing for the default of the program. */}}
{{- define "hccm.announcer" -}}
{{- if .Values.announcer -}}
{{- .Values.announcer -}}
{{- else -}}
{{- with index (.Subcharts | default dict) "kube-vip" -}}
{{- $announcesOurs := include "hccm.kubeVip.announcesOurs" (list $ .) -}}
{{- if and $announcesOurs (include "hccm-kube-vip.notesItsNode" .) }}kube-vip{{ end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "yes" if the controller manages only Services of its class. A flag in extraArgs takes precedence. */}}
{{- define "hccm.requiresClass" -}}
{{- $requires := eq (include "hccm.kubeVip.mode" .) "required" -}}
{{- $flag := "--require-load-balancer-class" -}}
{{- range .Values.extraArgs | default list | compact -}}
{{- $word := trim . -}}
{{- if eq $word $flag -}}
{{- $requires = true -}}
{{- else if hasPrefix (printf "%s=" $flag) $word -}}
{{- $requires = has (trimPrefix (printf "%s=" $flag) $word | lower) (list "true" "t" "1") -}}
{{- end -}}
{{- end -}}
{{- if $requires }}yes{{ end -}}
{{- end -}}

{{/* The value kubeVipPolicy. Without quotes, "off" is the boolean false in YAML. */}}
{{- define "hccm.kubeVipPolicy.mode" -}}
{{- if kindIs "bool" .Values.kubeVipPolicy -}}
off
{{- else -}}
{{- .Values.kubeVipPolicy | default "warn" -}}
{{- end -}}
{{- end -}}

{{/* "yes" if this cluster has the API of policies: from Kubernetes 1.30 on. */}}
{{- define "hccm.kubeVipPolicy.isPossible" -}}
{{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy" }}yes{{ end -}}
{{- end -}}

{{/* What the notes say about the policy. */}}
{{- define "hccm.kubeVipPolicy.state" -}}
{{- $mode := include "hccm.kubeVipPolicy.mode" . -}}
{{- if or (eq $mode "off") (include "hccm.kubeVipPolicy.isPossible" .) -}}
{{- $mode -}}
{{- else -}}
none, because this cluster has no ValidatingAdmissionPolicy (Kubernetes 1.30). Every user who may
change a Service can take the address of another one with them.
{{- end -}}
{{- end -}}

{{/* The value kube-vip.harvesterClass, also if kube-vip is not enabled. */}}
{{- define "hccm.kubeVip.mode" -}}
{{- ((index .Values "kube-vip") | default dict).harvesterClass | default "none" -}}
{{- end -}}

{{/* "yes" if kube-vip announces Services that the controller manages. The arguments: root scope, scope of kube-vip. */}}
{{- define "hccm.kubeVip.announcesOurs" -}}
{{- $kubeVip := index . 1 -}}
{{- $announcesClass := eq (include "hccm-kube-vip.class" $kubeVip) (include "hccm.loadBalancerClass" $kubeVip) -}}
{{- $announcesOthers := not (include "hccm-kube-vip.servesOnlyItsClass" $kubeVip) -}}
{{- $managesOthers := not (include "hccm.requiresClass" (index . 0)) -}}
{{- if or $announcesClass (and $announcesOthers $managesOthers) }}yes{{ end -}}
{{- end -}}

{{/* Fails if kube-vip would not announce Services that the controller manages, or would drop those of its present class. */}}
{{- define "hccm.kubeVip.check" -}}
{{- $mode := include "hccm.kubeVip.mode" . -}}
{{- $kubeVip := index (.Subcharts | default dict) "kube-vip" -}}
{{- if $kubeVip -}}
{{- if include "hccm-kube-vip.isOn" (list $kubeVip "svc_enable" "services" "false") -}}
{{- include "hccm.kubeVip.checkOneClass" $kubeVip -}}
{{- include "hccm.kubeVip.checkManaged" (list . $kubeVip) -}}
{{- include "hccm.kubeVip.checkDropped" $kubeVip -}}
{{- end -}}
{{- else if ne $mode "none" -}}
{{- fail (printf "kube-vip.harvesterClass is %s, but kube-vip.enabled is false, so the chart has no kube-vip that it could set. Remove kube-vip.harvesterClass, and give your kube-vip env lb_class_name=%s. For a controller that manages only Services of this class, set extraArgs={--require-load-balancer-class}" $mode (include "hccm.loadBalancerClass" .)) -}}
{{- end -}}
{{- end -}}

{{/* Fails if kube-vip.harvesterClass and a setting of kube-vip name different classes. The scope is that of kube-vip. */}}
{{- define "hccm.kubeVip.checkOneClass" -}}
{{- if include "hccm-kube-vip.setsClass" . -}}
{{- $class := include "hccm-kube-vip.class" . -}}
{{- $sentence := printf "kube-vip.harvesterClass is %s, so kube-vip serves the class %s, but %%s. kube-vip serves only one class. Remove one of the two values" .Values.harvesterClass $class -}}
{{- $variable := dig "lb_class_name" $class (.Values.env | default dict) | toString -}}
{{- if ne $variable $class -}}
{{- fail (printf $sentence (printf "kube-vip.env.lb_class_name is %q" $variable)) -}}
{{- end -}}
{{- $flag := dig "lbClassName" $class (.Values.extraArgs | default dict) | toString -}}
{{- if ne $flag $class -}}
{{- fail (printf $sentence (printf "kube-vip.extraArgs.lbClassName is %q" $flag)) -}}
{{- end -}}
{{- if hasKey (.Values.envValueFrom | default dict) "lb_class_name" -}}
{{- fail (printf $sentence "kube-vip.envValueFrom.lb_class_name is set") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fails if kube-vip serves none of the Services that the controller manages, or not those without a class. Another class
that is set by hand is respected: kube-vip then announces for another controller. Settings of an older chart stop only a new
installation. The arguments: root scope, scope of kube-vip. */}}
{{- define "hccm.kubeVip.checkManaged" -}}
{{- $root := index . 0 -}}
{{- $kubeVip := index . 1 -}}
{{- $ours := include "hccm.loadBalancerClass" $kubeVip -}}
{{- $default := include "hccm-kube-vip.defaultClass" $kubeVip -}}
{{- $class := include "hccm-kube-vip.class" $kubeVip -}}
{{- $requires := include "hccm.requiresClass" $root -}}
{{- if and $requires (eq $class $default) -}}
{{- fail (printf "--require-load-balancer-class is set, so the controller manages only Services with spec.loadBalancerClass %s, but of the Services with a class, kube-vip announces only the class %s: no address would be announced. Set kube-vip.harvesterClass=required instead of the flag" $ours $default) -}}
{{- end -}}
{{- $reason := include "hccm-kube-vip.servesOnlyItsClass" $kubeVip -}}
{{- $isNew := or $root.Release.IsInstall (include "hccm-kube-vip.setsClass" $kubeVip) -}}
{{- if and $reason $isNew (not $requires) (has $class (list $ours $default)) -}}
{{- fail (printf "%s in the settings of kube-vip, so it announces no Service without a class, but the controller manages these. Remove that setting, or set kube-vip.harvesterClass=required: the controller then manages only Services with spec.loadBalancerClass %s, and kube-vip announces them" $reason $ours) -}}
{{- end -}}
{{- end -}}

{{/* Fails if kube-vip serves another class now, and Services have it: kube-vip would withdraw their addresses. Where Helm
does not connect to the cluster, lookup finds nothing. The scope is that of kube-vip. */}}
{{- define "hccm.kubeVip.checkDropped" -}}
{{- $class := include "hccm-kube-vip.class" . -}}
{{- $running := include "hccm.kubeVip.runningClass" . -}}
{{- if and $running (not (has $class (list $running "unknown"))) -}}
{{- $dropped := list -}}
{{- range (lookup "v1" "Service" "" "").items -}}
{{- if and (eq .spec.type "LoadBalancer") (eq (.spec.loadBalancerClass | default "") $running) -}}
{{- $dropped = append $dropped (printf "%s/%s" .metadata.namespace .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- if $dropped -}}
{{- $shown := join ", " (slice $dropped 0 (min 5 (len $dropped))) -}}
{{- fail (printf "kube-vip would serve the class %s instead of %s, and would no longer announce Services with spec.loadBalancerClass %s. There are %d: %s. Delete them or create them again without this class, then repeat. To keep them, leave kube-vip.harvesterClass and lb_class_name as they were" $class $running $running (len $dropped) $shown) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The class that kube-vip serves now, or its default if it is not installed. The scope is that of kube-vip. */}}
{{- define "hccm.kubeVip.runningClass" -}}
{{- $class := include "hccm-kube-vip.defaultClass" . -}}
{{- $daemonSet := lookup "apps/v1" "DaemonSet" (include "hccm-kube-vip.namespace" .) (include "hccm-kube-vip.name" .) -}}
{{- range dig "spec" "template" "spec" "containers" list $daemonSet -}}
{{- range .env -}}
{{- if eq .name "lb_class_name" -}}
{{- $class = hasKey . "valueFrom" | ternary "unknown" (.value | default "") -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $class -}}
{{- end -}}
