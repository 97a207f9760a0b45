{{/* Where the model comes from, and how the commands are told. */}}

{{/* MODEL; empty: the image's own, which its SLUICEGATE_MODEL names. */}}
{{- define "sluicegate.model" -}}
{{- $model := .Values.model -}}
{{- if eq $model.source "pull" -}}
{{- $model.name -}}
{{- else if ne $model.source "embedded" -}}
{{- printf "/mnt/models/%s" $model.path | trimSuffix "/" -}}
{{- end -}}
{{- end -}}

{{/* Where what was pulled is kept. Of a model of the hub that is the hub's own cache, and the one of everything else stays
in HOME: vLLM writes to it, and who serves has the model read-only. */}}
{{- define "sluicegate.modelEnv" -}}
{{- if ne .Values.model.source "pull" }}
{{- else if contains "/" .Values.model.name }}
- {name: HF_HOME, value: /mnt/models/huggingface}
{{- else }}
- {name: XDG_CACHE_HOME, value: /mnt/models}
{{- end }}
{{- end -}}

{{- define "sluicegate.modelVolume" -}}
{{- $model := .Values.model -}}
{{- if eq $model.source "image" }}
- name: model
  image:
    reference: {{ $model.image.reference | quote }}
    pullPolicy: {{ $model.image.pullPolicy }}
{{- else if $model.pvc.claimName }}
- name: model
  persistentVolumeClaim:
    claimName: {{ $model.pvc.claimName | quote }}
    {{- if eq $model.source "pvc" }}
    readOnly: true
    {{- end }}
{{- else if eq $model.source "pull" }}
- name: model
  emptyDir:
    sizeLimit: {{ $model.sizeLimit }}
{{- end }}
{{- end -}}

{{/* (root, whether it may be written to) */}}
{{- define "sluicegate.modelMount" -}}
{{- $model := (index . 0).Values.model -}}
{{- if ne $model.source "embedded" }}
- name: model
  mountPath: /mnt/models
  {{- if not (index . 1) }}
  readOnly: true
  {{- end }}
  {{- with $model.pvc.subPath }}
  subPath: {{ . | quote }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "sluicegate.modelPull" -}}
{{- if eq .Values.model.source "pull" }}
- name: pull
  image: {{ include "sluicegate.clientImage" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: [sluicegate]
  args: [pull, {{ .Values.model.name | quote }}]
  env:
    {{- include "sluicegate.commonEnv" . | nindent 4 }}
    {{- include "sluicegate.modelEnv" . | trim | nindent 4 }}
    {{- with .Values.model.hubToken }}
    {{- if .secretName }}
    - name: HF_TOKEN
      valueFrom:
        secretKeyRef: {name: {{ .secretName | quote }}, key: {{ .key | quote }}}
    {{- end }}
    {{- end }}
  resources:
    requests: {cpu: 100m, memory: 512Mi}
    limits: {memory: 2Gi}
  securityContext:
    {{- toYaml .Values.containerSecurityContext | nindent 4 }}
  volumeMounts:
    {{- include "sluicegate.scratchMounts" . | nindent 4 }}
    {{- include "sluicegate.modelMount" (list . true) | trim | nindent 4 }}
{{- end }}
{{- end -}}
