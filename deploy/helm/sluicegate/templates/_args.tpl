{{/* Command lines, one word a line. Flags that are not here are `config`'s, or extraArgs'. */}}

{{- define "sluicegate.commonArgs" -}}
- --log-level={{ .Values.log.level }}
- --log-format={{ .Values.log.format }}
{{- if .Values.config }}
- --config=/etc/sluicegate/config/sluicegate.yaml
{{- end }}
{{- end -}}

{{/* What `gateway` and `serve` have in common. */}}
{{- define "sluicegate.gatewayArgs" -}}
{{- with include "sluicegate.model" . -}}
- {{ . | quote }}
{{ end -}}
- --grpc-address={{ .Values.listenHost }}:{{ .Values.ports.grpc }}
- --health-address={{ .Values.listenHost }}:{{ .Values.ports.health }}
- --metrics-address={{ .Values.listenHost }}:{{ .Values.ports.metrics }}
- --admin-address=127.0.0.1:{{ .Values.ports.admin }}
{{- with .Values.model.servedName }}
- {{ printf "--served-model-name=%s" . | quote }}
{{- end }}
- --core-load-timeout={{ int .Values.model.loadTimeoutSeconds }}
- --lame-duck={{ int .Values.shutdown.lameDuckSeconds }}
- --drain-timeout={{ int .Values.shutdown.drainSeconds }}
- --max-connection-age={{ int .Values.connections.maxAgeSeconds }}
- --max-connection-age-grace={{ int .Values.connections.maxAgeGraceSeconds }}
{{- if .Values.tls.enabled }}
- --tls-cert=/etc/sluicegate/tls/tls.crt
- --tls-key=/etc/sluicegate/tls/tls.key
{{- if .Values.tls.clientCASecretName }}
- --tls-client-ca=/etc/sluicegate/client-ca/ca.crt
{{- end }}
{{- end }}
{{- if .Values.apiKeys.secretName }}
- --api-key-file=/etc/sluicegate/api-keys/keys
{{- end }}
{{- if .Values.adminKeys.secretName }}
- --admin-key-file=/etc/sluicegate/admin-keys/keys
{{- end }}
{{- if .Values.log.access }}
- --access-log
{{- end }}
{{ include "sluicegate.commonArgs" . }}
{{- end -}}

{{/* Where gateway and core of a pod meet. The gateway's own sockets lie in the same folder, since it is its TMPDIR. vLLM's
core dials tcp, and is answered there. */}}
{{- define "sluicegate.handshakeArg" -}}
{{- if eq .Values.engine.type "vllm" -}}
- --handshake-address=tcp://127.0.0.1:{{ .Values.engine.vllm.handshakePort }}
{{- else -}}
- --handshake-address=ipc:///run/sluicegate/handshake
{{- end -}}
{{- end -}}

{{/* Of our own core, wherever it runs. */}}
{{- define "sluicegate.engineArgs" -}}
{{- with .Values.model.kvCacheMemory }}
- --kv-cache-memory={{ . }}
{{- end }}
{{- include "sluicegate.kvEventsArgs" . }}
{{- include "sluicegate.rankArgs" . }}
{{- end -}}

{{/* Of all its ranks. Which rank is which pod's says the LeaderWorkerSet. */}}
{{- define "sluicegate.rankArgs" -}}
{{- if .Values.gpu.enabled }}
- --device=cuda
{{- end }}
{{- if gt (int .Values.engine.tensorParallelSize) 1 }}
- --tensor-parallel-size={{ int .Values.engine.tensorParallelSize }}
{{- end }}
{{- if .Values.multiNode.enabled }}
- --master-port={{ int .Values.multiNode.masterPort }}
{{- end }}
{{- end -}}

{{/* As long as the gateway may drain, and 10 s more: `serve` gives its cores the same. */}}
{{- define "sluicegate.coreShutdownArg" -}}
- --shutdown-timeout={{ add .Values.shutdown.drainSeconds 10 }}
{{- end -}}

{{/* Our own dials again when its gateway starts again: it has the model loaded. */}}
{{- define "sluicegate.coreArgs" -}}
{{- if eq .Values.engine.type "torch" -}}
- core
{{- with include "sluicegate.model" . }}
- {{ . | quote }}
{{- end }}
{{ include "sluicegate.handshakeArg" . }}
- --survive-frontend
{{ include "sluicegate.coreShutdownArg" . }}
{{- include "sluicegate.engineArgs" . }}
{{ include "sluicegate.commonArgs" . }}
{{- else -}}
{{ include "sluicegate.vllmCommand" . }}
- --data-parallel-address=127.0.0.1
- --data-parallel-rpc-port={{ int .Values.engine.vllm.handshakePort }}
{{ include "sluicegate.coreShutdownArg" . }}
{{- include "sluicegate.vllmKvEventsArg" . }}
{{ include "sluicegate.vllmArgs" (list . 0) }}
{{- end }}
{{- end -}}

{{/* A rank that another host's core leads. */}}
{{- define "sluicegate.workerArgs" -}}
{{- if eq .Values.engine.type "torch" -}}
- core
{{- with include "sluicegate.model" . }}
- {{ . | quote }}
{{- end }}
- --headless
{{ include "sluicegate.coreShutdownArg" . }}
{{- include "sluicegate.rankArgs" . }}
{{ include "sluicegate.commonArgs" . }}
{{- else -}}
{{ include "sluicegate.vllmCommand" . }}
{{ include "sluicegate.vllmArgs" (list . "$(LWS_WORKER_INDEX)") }}
{{- end }}
{{- end -}}

{{/* (root, extra arguments). vLLM's options come after --, and so last. */}}
{{- define "sluicegate.serveArgs" -}}
{{- $root := index . 0 -}}
- serve
{{ include "sluicegate.gatewayArgs" $root }}
{{- if eq $root.Values.engine.type "torch" }}
{{- include "sluicegate.engineArgs" $root }}
{{- else }}
- --engine=vllm
- {{ printf "--engine-python=%s" $root.Values.engine.vllm.python | quote }}
{{- end }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- if eq $root.Values.engine.type "vllm" }}
- --
{{- include "sluicegate.vllmKvEventsArg" $root }}
{{ include "sluicegate.vllmArgs" (list $root 0) }}
{{- end }}
{{- end -}}

{{- define "sluicegate.vllmCommand" -}}
- -m
- vllm.entrypoints.cli.main
- serve
- {{ include "sluicegate.model" . | quote }}
- --headless
{{- end -}}

{{/* (root, node rank) */}}
{{- define "sluicegate.vllmArgs" -}}
{{- $values := (index . 0).Values -}}
- --tensor-parallel-size={{ int $values.engine.tensorParallelSize }}
- --pipeline-parallel-size={{ int $values.engine.pipelineParallelSize }}
{{- if $values.multiNode.enabled }}
- --nnodes={{ int $values.multiNode.size }}
- --node-rank={{ index . 1 }}
- --master-addr=$(LWS_LEADER_ADDRESS)
- --master-port={{ int $values.multiNode.masterPort }}
{{- end }}
{{- with $values.engine.vllm.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}
