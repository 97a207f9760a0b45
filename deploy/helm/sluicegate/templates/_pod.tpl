{{/* Pods: what their containers share, then the pods themselves. */}}

{{- define "sluicegate.commonEnv" -}}
- {name: HOME, value: /home/sluicegate}
{{- end -}}

{{- define "sluicegate.scratchMounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: home, mountPath: /home/sluicegate}
{{- end -}}

{{/* (root, gateway | core | serve | worker): until when it is not told to end. A core that was told takes no new
requests, so it is when its gateway takes none either; vLLM's workers, which know no drain, when that is over. */}}
{{- define "sluicegate.preStopSeconds" -}}
{{- $root := index . 0 -}}
{{- $shutdown := $root.Values.shutdown -}}
{{- if has (index . 1) (list "gateway" "serve") -}}
{{- $shutdown.preStopSeconds -}}
{{- else if and (eq (index . 1) "worker") (eq $root.Values.engine.type "vllm") -}}
{{- add $shutdown.preStopSeconds $shutdown.lameDuckSeconds $shutdown.drainSeconds 10 -}}
{{- else -}}
{{- add $shutdown.preStopSeconds $shutdown.lameDuckSeconds 2 -}}
{{- end -}}
{{- end -}}

{{/* (root, service of grpc.health.v1, when to ask) */}}
{{- define "sluicegate.probe" -}}
{{- $values := (index . 0).Values -}}
{{- $port := int $values.ports.health -}}
{{- $command := list "sluicegate" "health" (printf "--address=127.0.0.1:%d" $port) (printf "--service=%s" (index . 1)) -}}
{{- $grpc := dict "grpc" (dict "port" $port "service" (index . 1)) -}}
{{- $action := ternary $grpc (dict "exec" (dict "command" $command)) (eq $values.probes.type "grpc") -}}
{{- merge $action (index . 2) | toYaml -}}
{{- end -}}

{{- define "sluicegate.probes" -}}
{{- $startup := .Values.probes.startup -}}
{{- $periods := divf (add .Values.model.loadTimeoutSeconds 60) $startup.periodSeconds | ceil | int -}}
startupProbe:
  {{- include "sluicegate.probe" (list . "readiness" (merge (dict "failureThreshold" $periods) $startup)) | nindent 2 }}
readinessProbe:
  {{- include "sluicegate.probe" (list . "readiness" .Values.probes.readiness) | nindent 2 }}
livenessProbe:
  {{- include "sluicegate.probe" (list . "liveness" .Values.probes.liveness) | nindent 2 }}
{{- end -}}

{{/* Secrets are mounted as folders: what is mounted by subPath never changes. */}}
{{- define "sluicegate.secretVolumes" -}}
{{- if .Values.tls.enabled }}
- name: tls
  secret: {secretName: {{ .Values.tls.secretName | quote }}, defaultMode: 0440}
{{- if .Values.tls.clientCASecretName }}
- name: client-ca
  secret:
    secretName: {{ .Values.tls.clientCASecretName | quote }}
    defaultMode: 0440
    items: [{key: ca.crt, path: ca.crt}]
{{- end }}
{{- end }}
{{- if .Values.apiKeys.secretName }}
- name: api-keys
  secret: {secretName: {{ .Values.apiKeys.secretName | quote }}, defaultMode: 0440}
{{- end }}
{{- if .Values.adminKeys.secretName }}
- name: admin-keys
  secret: {secretName: {{ .Values.adminKeys.secretName | quote }}, defaultMode: 0440}
{{- end }}
{{- end -}}

{{- define "sluicegate.secretMounts" -}}
{{- if .Values.tls.enabled }}
- {name: tls, mountPath: /etc/sluicegate/tls, readOnly: true}
{{- if .Values.tls.clientCASecretName }}
- {name: client-ca, mountPath: /etc/sluicegate/client-ca, readOnly: true}
{{- end }}
{{- end }}
{{- if .Values.apiKeys.secretName }}
- {name: api-keys, mountPath: /etc/sluicegate/api-keys, readOnly: true}
{{- end }}
{{- if .Values.adminKeys.secretName }}
- {name: admin-keys, mountPath: /etc/sluicegate/admin-keys, readOnly: true}
{{- end }}
{{- end -}}

{{/* (root, gateway | core | serve | worker): one of the model's server. */}}
{{- define "sluicegate.container" -}}
{{- $root := index . 0 -}}
{{- $command := index . 1 -}}
{{- $own := index $root.Values $command -}}
{{- $isGateway := has $command (list "gateway" "serve") -}}
{{- $computes := ne $command "gateway" -}}
{{- $publishes := and $root.Values.kvEvents.enabled (has $command (list "core" "serve")) -}}
{{- $isVllm := eq $root.Values.engine.type "vllm" -}}
{{- $image := $own.image -}}
{{- if eq $command "worker" -}}{{- $image = default $root.Values.core.image $own.image -}}{{- end -}}
name: {{ $command }}
image: {{ include "sluicegate.image" (list $root $image) | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
command: [{{ ternary $root.Values.engine.vllm.python "sluicegate" (and $isVllm (not $isGateway)) | quote }}]
args:
  {{- if eq $command "gateway" }}
  - gateway
  {{- include "sluicegate.gatewayArgs" $root | nindent 2 }}
  {{- include "sluicegate.handshakeArg" $root | nindent 2 }}
  {{- else if eq $command "core" }}
  {{- include "sluicegate.coreArgs" $root | nindent 2 }}
  {{- else if eq $command "serve" }}
  {{- include "sluicegate.serveArgs" (list $root $own.extraArgs) | nindent 2 }}
  {{- else }}
  {{- include "sluicegate.workerArgs" $root | nindent 2 }}
  {{- end }}
  {{- if and $own.extraArgs (ne $command "serve") }}
  {{- toYaml $own.extraArgs | nindent 2 }}
  {{- end }}
env:
  {{- include "sluicegate.commonEnv" $root | nindent 2 }}
  {{- with include "sluicegate.modelEnv" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if eq $root.Values.model.source "pull" }}
  - {name: HF_HUB_OFFLINE, value: "1"}
  {{- end }}
  {{- if eq $command "gateway" }}
  - {name: TMPDIR, value: /run/sluicegate}
  {{- end }}
  {{- if and $isVllm $computes }}
  {{- /* torch asks who it is, and a user that the cluster has assigned has no name. */}}
  - {name: USER, value: sluicegate}
  {{- end }}
  {{- if $publishes }}
  - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
  {{- end }}
  {{- with $own.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- $kvEventsPorts := ternary (include "sluicegate.kvEventsPorts" $root | fromYaml) dict $publishes }}
{{- if or $isGateway $publishes }}
ports:
  {{- if $isGateway }}
  - {name: grpc, containerPort: {{ int $root.Values.ports.grpc }}}
  - {name: health, containerPort: {{ int $root.Values.ports.health }}}
  - {name: metrics, containerPort: {{ int $root.Values.ports.metrics }}}
  {{- end }}
  {{- range $name, $port := $kvEventsPorts }}
  - {name: {{ $name }}, containerPort: {{ int $port }}}
  {{- end }}
{{- end }}
{{- if $isGateway }}
{{ include "sluicegate.probes" $root }}
{{- end }}
{{- $preStopSeconds := include "sluicegate.preStopSeconds" (list $root $command) | int }}
{{- if $preStopSeconds }}
lifecycle:
  preStop:
    sleep: {seconds: {{ $preStopSeconds }}}
{{- end }}
resources:
  {{- $resources := deepCopy (default dict $own.resources) }}
  {{- if and $computes $root.Values.gpu.enabled }}
  {{- $resources = merge (dict "limits" (dict $root.Values.gpu.resourceName (int $root.Values.gpu.count))) $resources }}
  {{- end }}
  {{- toYaml $resources | nindent 2 }}
securityContext:
  {{- toYaml $root.Values.containerSecurityContext | nindent 2 }}
volumeMounts:
  {{- include "sluicegate.scratchMounts" $root | nindent 2 }}
  {{- if has $command (list "gateway" "core") }}
  - {name: run, mountPath: /run/sluicegate}
  {{- end }}
  {{- if $computes }}
  - {name: shm, mountPath: /dev/shm}
  {{- end }}
  {{- with include "sluicegate.modelMount" (list $root false) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- if $root.Values.config }}
  - {name: config, mountPath: /etc/sluicegate/config, readOnly: true}
  {{- end }}
  {{- if $isGateway }}
  {{- with include "sluicegate.secretMounts" $root | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- end }}
  {{- with $root.Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* (root, server | worker): a pod template. */}}
{{- define "sluicegate.pod" -}}
{{- $root := index . 0 -}}
{{- $component := index . 1 -}}
{{- $isServer := eq $component "server" -}}
{{- $isSplit := and $isServer (eq $root.Values.mode "split") -}}
{{- $commands := ternary (list "gateway" "core") (list (ternary "serve" "worker" $isServer)) $isSplit -}}
metadata:
  labels:
    {{- $labels := ternary (default dict $root.Values.podLabels) dict $isServer }}
    {{- include "sluicegate.labelsWith" (list $root (merge (dict "app.kubernetes.io/component" $component) $labels)) | nindent 4 }}
  annotations:
    {{- $annotations := dict "kubectl.kubernetes.io/default-container" (first $commands) }}
    {{- with $root.Values.config }}
    {{- $_ := set $annotations "checksum/config" (toYaml . | sha256sum) }}
    {{- end }}
    {{- toYaml (merge $annotations (default dict $root.Values.podAnnotations)) | nindent 4 }}
spec:
  serviceAccountName: {{ include "sluicegate.serviceAccountName" $root | quote }}
  automountServiceAccountToken: false
  {{- /* Variables of a Service named sluicegate would look like settings. */}}
  enableServiceLinks: false
  {{- with $root.Values.shutdown }}
  terminationGracePeriodSeconds: {{ add .preStopSeconds .lameDuckSeconds .drainSeconds .marginSeconds }}
  {{- end }}
  {{- with $root.Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $root.Values.podSecurityContext | nindent 4 }}
  {{- with include "sluicegate.modelPull" $root | trim }}
  initContainers:
    {{- . | nindent 4 }}
  {{- end }}
  containers:
    {{- range $commands }}
    - {{ include "sluicegate.container" (list $root .) | indent 6 | trim }}
    {{- end }}
  volumes:
    - name: tmp
      emptyDir: {sizeLimit: {{ $root.Values.scratch.tmp }}}
    - name: home
      emptyDir: {sizeLimit: {{ $root.Values.scratch.home }}}
    - name: shm
      emptyDir: {medium: Memory, sizeLimit: {{ $root.Values.scratch.shm }}}
    {{- if $isSplit }}
    - name: run
      emptyDir: {sizeLimit: 64Mi}
    {{- end }}
    {{- with include "sluicegate.modelVolume" $root | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if $root.Values.config }}
    - name: config
      configMap: {name: {{ include "sluicegate.fullname" $root }}}
    {{- end }}
    {{- if $isServer }}
    {{- with include "sluicegate.secretVolumes" $root | trim }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- end }}
    {{- with $root.Values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with $root.Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $root.Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if $root.Values.topologySpreadConstraints }}
  topologySpreadConstraints:
    {{- range $root.Values.topologySpreadConstraints }}
    {{- $default := dict "labelSelector" (dict "matchLabels" (include "sluicegate.releaseLabels" $root | fromYaml)) }}
    - {{ toYaml (merge (deepCopy .) $default) | indent 6 | trim }}
    {{- end }}
  {{- end }}
  {{- with $root.Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with $root.Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
{{- end -}}
