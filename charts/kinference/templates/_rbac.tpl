{{- /*
What Kinference needs of the API server, as a list of {feature, namespace, rule}; no namespace: cluster-wide.
Every rule is due to one feature that `config` enables. docs/kubernetes.md has the same as a table.
*/}}
{{- define "kinference.grants" -}}
{{- $config := .Values.config }}
{{- $own := .Release.Namespace }}
{{- $watch := list "list" "watch" }}
{{- /* Before a status is written anew, the object is looked at again. */}}
{{- $keep := prepend $watch "get" }}
{{- $grants := list }}
{{- $pods := false }}

{{- $workersets := $config.kubernetes | default dict }}
{{- if $workersets.enabled }}
{{- $pods = true }}
{{- $namespace := $workersets.namespace | default "" }}
{{- range $rule := list
  (dict "apiGroups" (list "kinference.buoyant.io") "resources" (list "inferenceworkersets") "verbs" $keep)
  (dict "apiGroups" (list "kinference.buoyant.io") "resources" (list "inferenceworkersets/status") "verbs" (list "patch"))
  (dict "apiGroups" (list "discovery.k8s.io") "resources" (list "endpointslices") "verbs" $watch)
  (dict "apiGroups" (list "") "resources" (list "pods") "verbs" $watch)
}}
{{- $grants = append $grants (dict "feature" "kubernetes" "namespace" $namespace "rule" $rule) }}
{{- end }}
{{- end }}

{{- range $set := $config.workerset }}
{{- $discovery := $set.discovery | default dict }}
{{- $namespace := $discovery.namespace | default $own }}
{{- $mode := $discovery.mode | default "static" }}
{{- $rules := list }}
{{- if eq $mode "kubernetes" }}
{{- $rules = list (dict "apiGroups" (list "discovery.k8s.io") "resources" (list "endpointslices") "verbs" $watch) }}
{{- else if eq $mode "inference_pool" }}
{{- $rules = list
  (dict "apiGroups" (list "inference.networking.k8s.io") "resources" (list "inferencepools") "verbs" $watch)
  (dict "apiGroups" (list "") "resources" (list "pods") "verbs" $watch)
}}
{{- end }}
{{- range $rule := $rules }}
{{- $pods = true }}
{{- $grants = append $grants (dict "feature" $mode "namespace" $namespace "rule" $rule) }}
{{- end }}
{{- end }}

{{- if and $pods .Values.rbac.nodes }}
{{- $rule := dict "apiGroups" (list "") "resources" (list "nodes") "verbs" $watch }}
{{- $grants = append $grants (dict "feature" "nodes" "namespace" "" "rule" $rule) }}
{{- end }}

{{- $policy := $config.policy | default dict }}
{{- $kubernetes := $config.kubernetes | default dict }}
{{- if and $policy.enabled (or (not $policy.files) $kubernetes.enabled) }}
{{- $kinds := list "gatewaybackends" "inferencepolicies" "inferencepools" "inferenceproviders" }}
{{- $statuses := list }}
{{- range $kinds }}
{{- $statuses = append $statuses (printf "%s/status" .) }}
{{- end }}
{{- range $rule := list
  (dict "apiGroups" (list "kinference.buoyant.io") "resources" $kinds "verbs" $keep)
  (dict "apiGroups" (list "kinference.buoyant.io") "resources" $statuses "verbs" (list "patch"))
}}
{{- $grants = append $grants (dict "feature" "policy" "namespace" ($policy.namespace | default "") "rule" $rule) }}
{{- end }}
{{- if and .Values.providers.secrets (not $policy.secrets_dir) }}
{{- $rule := dict "apiGroups" (list "") "resources" (list "secrets") "resourceNames" .Values.providers.secrets "verbs" $watch }}
{{- $grants = append $grants (dict "feature" "providers" "namespace" ($policy.namespace | default $own) "rule" $rule) }}
{{- end }}
{{- end }}

{{- $lease := $config.leader_election | default dict }}
{{- if $lease.enabled }}
{{- $name := $lease.lease_name | default "bllmp" }}
{{- range $rule := list
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "verbs" (list "create"))
  (dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") "resourceNames" (list $name) "verbs" (list "get" "update"))
}}
{{- $grants = append $grants (dict "feature" "leader_election" "namespace" ($lease.namespace | default $own) "rule" $rule) }}
{{- end }}
{{- end }}

{{- if ($config.token_review | default dict).enabled }}
{{- $rule := dict "apiGroups" (list "authentication.k8s.io") "resources" (list "tokenreviews") "verbs" (list "create") }}
{{- $grants = append $grants (dict "feature" "token_review" "namespace" "" "rule" $rule) }}
{{- end }}
{{- toYaml $grants }}
{{- end }}

{{- /* "true" if Kinference talks to the API server at all. */}}
{{- define "kinference.usesApiServer" -}}
{{- if fromYamlArray (include "kinference.grants" .) }}true{{ end }}
{{- end }}
