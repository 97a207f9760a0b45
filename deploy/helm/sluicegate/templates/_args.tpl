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
{{- with include "sluicegate.model" . }}
- {{ . }}
{{- end }}
- --grpc-address={{ .Values.listenHost }}:{{ .Values.ports.grpc }}
- --health-address={{ .Values.listenHost }}:{{ .Values.ports.health }}
- --metrics-address={{ .Values.listenHost }}:{{ .Values.ports.metrics }}
- --admin-address=127.0.0.1:{{ .Values.ports.admin }}
{{- with .Values.model.servedName }}
- --served-model-name={{ . }}
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

{{/* Where gateway and core of a pod meet. The gateway's own sockets lie in the same folder, since it is its TMPDIR. */}}
{{- define "sluicegate.handshakeArg" -}}
- --handshake-address=ipc:///run/sluicegate/handshake
{{- end -}}

{{/* Of our own core, wherever it runs. */}}
{{- define "sluicegate.engineArgs" -}}
{{- with .Values.model.kvCacheMemory }}
- --kv-cache-memory={{ . }}
{{- end }}
{{- if .Values.gpu.enabled }}
- --device=cuda
{{- end }}
{{- end -}}

{{/* As long as the gateway may drain, and 10 s more: `serve` gives its cores the same. */}}
{{- define "sluicegate.coreShutdownArg" -}}
- --shutdown-timeout={{ add .Values.shutdown.drainSeconds 10 }}
{{- end -}}

{{/* Whoever starts again dials again: a core that stays has its model loaded. */}}
{{- define "sluicegate.coreArgs" -}}
{{- with include "sluicegate.model" . }}
- {{ . }}
{{- end }}
{{ include "sluicegate.handshakeArg" . }}
- --survive-frontend
{{ include "sluicegate.coreShutdownArg" . }}
{{- include "sluicegate.engineArgs" . }}
{{ include "sluicegate.commonArgs" . }}
{{- end -}}

{{/* (root, extra arguments). vLLM's options come after --, and so last. */}}
{{- define "sluicegate.serveArgs" -}}
{{- $root := index . 0 -}}
{{- $multiNode := $root.Values.multiNode -}}
{{- include "sluicegate.gatewayArgs" $root }}
{{- if not $multiNode.enabled }}
{{- include "sluicegate.engineArgs" $root }}
{{- else if eq $multiNode.engine "torch" }}
{{- include "sluicegate.engineArgs" $root }}
- --tensor-parallel-size={{ int $multiNode.tensorParallelSize }}
- --master-port={{ int $multiNode.masterPort }}
{{- else }}
- --engine=vllm
- --engine-python={{ $multiNode.vllm.python }}
{{- end }}
{{- with index . 1 }}
{{ toYaml . }}
{{- end }}
{{- if and $multiNode.enabled (eq $multiNode.engine "vllm") }}
- --
{{ include "sluicegate.vllmArgs" (list $root 0) }}
{{- end }}
{{- end -}}

{{/* (root, node rank) */}}
{{- define "sluicegate.vllmArgs" -}}
{{- $multiNode := (index . 0).Values.multiNode -}}
- --tensor-parallel-size={{ int $multiNode.tensorParallelSize }}
- --pipeline-parallel-size={{ int $multiNode.pipelineParallelSize }}
- --nnodes={{ int $multiNode.size }}
- --node-rank={{ index . 1 }}
- --master-addr=$(LWS_LEADER_ADDRESS)
- --master-port={{ int $multiNode.masterPort }}
{{- with $multiNode.vllm.extraArgs }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A rank that another host's core leads. */}}
{{- define "sluicegate.workerArgs" -}}
{{- if eq .Values.multiNode.engine "torch" -}}
- core
{{- with include "sluicegate.model" . }}
- {{ . }}
{{- end }}
- --headless
- --tensor-parallel-size={{ int .Values.multiNode.tensorParallelSize }}
- --master-port={{ int .Values.multiNode.masterPort }}
{{ include "sluicegate.coreShutdownArg" . }}
{{- if .Values.gpu.enabled }}
- --device=cuda
{{- end }}
{{ include "sluicegate.commonArgs" . }}
{{- else -}}
- -m
- vllm.entrypoints.cli.main
- serve
- {{ include "sluicegate.model" . }}
- --headless
{{ include "sluicegate.vllmArgs" (list . "$(LWS_WORKER_INDEX)") }}
{{- end }}
{{- end -}}
