{{- /* What values.schema.json can't say: how values relate. */}}
{{- define "kinference.checks" -}}
{{- $least := add .Values.preStopSeconds 31 | int }}
{{- $grace := int .Values.terminationGracePeriodSeconds }}
{{- if lt $grace $least }}
{{- fail (printf "terminationGracePeriodSeconds is %d: it must be at least %d, which is preStopSeconds and 31 seconds of draining" $grace $least) }}
{{- end }}
{{- with .Values.autoscaling }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}
{{- fail (printf "autoscaling.minReplicas is %d: it must be at most autoscaling.maxReplicas, %d" (int .minReplicas) (int .maxReplicas)) }}
{{- end }}
{{- end }}
{{- if and .Values.service.headless (ne .Values.service.type "ClusterIP") }}
{{- fail (printf "service.headless is true: service.type must then be ClusterIP, not %s" .Values.service.type) }}
{{- end }}
{{- if not (or (.Values.config.kubernetes | default dict).enabled .Values.config.workerset) }}
{{- fail "config.kubernetes.enabled is not true: config.workerset must then have at least one worker set" }}
{{- end }}
{{- range $set := .Values.config.workerset }}
{{- $discovery := $set.discovery | default dict }}
{{- if and (eq ($discovery.mode | default "static") "kubernetes") (not $discovery.service_name) }}
{{- fail (printf "config.workerset %q has the mode \"kubernetes\": it must have a service_name" $set.name) }}
{{- end }}
{{- $file := $discovery.workers_file | default "" }}
{{- if and $file (not (contains "/" $file)) (not (hasKey $.Values.workers $file)) }}
{{- fail (printf "config.workerset %q has the workers_file %q: it must be a file of `workers`, or a path that extraVolumeMounts provides" $set.name $file) }}
{{- end }}
{{- end }}
{{- end }}
