{{/* KV events: what a core's container is told, and the ports that are open for it. */}}

{{/* Name and number of each, as YAML; none where they are off. Rank r of data-parallel cores has the next but r. */}}
{{- define "sluicegate.kvEventsPorts" -}}
{{- $events := .Values.kvEvents -}}
{{- if $events.enabled -}}
{{- range $rank := until (index (default dict .Values.config) "data-parallel-size" | default 1 | int) }}
{{- $suffix := ternary (printf "-%d" $rank) "" (gt $rank 0) }}
kv-events{{ $suffix }}: {{ add $events.port $rank }}
kv-replay{{ $suffix }}: {{ add $events.replayPort $rank }}
{{- end }}
{{- end -}}
{{- end -}}

{{/* (root, port). At * or [::] a core listens; it would dial 0.0.0.0. */}}
{{- define "sluicegate.kvEventsEndpoint" -}}
tcp://{{ ternary "*" "[::]" (eq (index . 0).Values.listenHost "0.0.0.0") }}:{{ index . 1 | int }}
{{- end -}}

{{/* Of our own core. */}}
{{- define "sluicegate.kvEventsArgs" -}}
{{- with .Values.kvEvents }}
{{- if .enabled }}
- {{ printf "--kv-events-endpoint=%s" (include "sluicegate.kvEventsEndpoint" (list $ .port)) | quote }}
- {{ printf "--kv-events-replay-endpoint=%s" (include "sluicegate.kvEventsEndpoint" (list $ .replayPort)) | quote }}
{{- with .topic }}
- {{ printf "--kv-events-topic=%s" . | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Of vLLM's. */}}
{{- define "sluicegate.vllmKvEventsArg" -}}
{{- with .Values.kvEvents }}
{{- if .enabled }}
{{- $places := dict "endpoint" (include "sluicegate.kvEventsEndpoint" (list $ .port)) "replay_endpoint" (include "sluicegate.kvEventsEndpoint" (list $ .replayPort)) }}
{{- $config := merge (dict "enable_kv_cache_events" true "publisher" "zmq" "topic" (default "" .topic)) $places }}
- {{ printf "--kv-events-config=%s" (toRawJson $config) | quote }}
{{- end }}
{{- end }}
{{- end -}}
