{{- /* Helm reads every number as a float: whole ones are made integers again, in place, or TOML would say 16.0. */}}
{{- define "kinference.integers" -}}
{{- $table := . }}
{{- range $key, $value := $table }}
{{- if kindIs "float64" $value }}
{{- if eq $value (floor $value) }}
{{- $_ := set $table $key (int64 $value) }}
{{- end }}
{{- else if kindIs "map" $value }}
{{- include "kinference.integers" $value }}
{{- else if kindIs "slice" $value }}
{{- range $value }}
{{- if kindIs "map" . }}
{{- include "kinference.integers" . }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "kinference.tls" -}}
{{- $tls := .Values.tls }}
{{- $table := dict }}
{{- if eq $tls.mode "SelfSigned" }}
{{- $_ := set $table "self_signed" true }}
{{- else if eq $tls.mode "Secret" }}
{{- $_ := set $table "cert_file" "/etc/kinference-tls/tls.crt" }}
{{- $_ := set $table "key_file" "/etc/kinference-tls/tls.key" }}
{{- end }}
{{- if $tls.clientCASecretName }}
{{- $_ := set $table "client_ca_file" "/etc/kinference-client-ca/ca.crt" }}
{{- end }}
{{- toYaml $table }}
{{- end }}

{{- /* kinference.toml */}}
{{- define "kinference.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $host := ternary (printf "[%s]" .Values.listenAddress) .Values.listenAddress (contains ":" .Values.listenAddress) }}
{{- $_ := set $config "listen" (printf "%s:%d" $host (int .Values.ports.grpc)) }}
{{- $_ := set $config "admin_listen" (printf "%s:%d" $host (int .Values.ports.admin)) }}
{{- with fromYaml (include "kinference.tls" .) }}
{{- $_ := set $config "tls" . }}
{{- end }}
{{- include "kinference.integers" $config }}
{{- toToml $config }}
{{- end }}

{{- /* One workers file. */}}
{{- define "kinference.workers" -}}
{{- $file := dict "workers" (deepCopy .) }}
{{- include "kinference.integers" $file }}
{{- toToml $file }}
{{- end }}
