{{/* Names and labels. Selectors hold what never changes with a version: they are immutable. */}}

{{- define "sluicegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Short enough for what is put behind it: LeaderWorkerSet names pods NAME-group-0-1, and labels end at 63. */}}
{{- define "sluicegate.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "sluicegate.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "sluicegate.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "sluicegate.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "sluicegate.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Of all pods of the release. */}}
{{- define "sluicegate.releaseLabels" -}}
app.kubernetes.io/name: {{ include "sluicegate.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Of the pods that clients call. */}}
{{- define "sluicegate.serverLabels" -}}
{{ include "sluicegate.releaseLabels" . }}
app.kubernetes.io/component: server
{{- end -}}

{{/* A label selector of the pods that serve, with the workers of a group: not that of `helm test`. */}}
{{- define "sluicegate.ranksSelector" -}}
matchLabels:
  {{- include "sluicegate.releaseLabels" . | nindent 2 }}
matchExpressions:
  - {key: app.kubernetes.io/component, operator: In, values: [server, worker]}
{{- end -}}

{{/* Of every object, but for app.kubernetes.io/component. */}}
{{- define "sluicegate.labels" -}}
{{ include "sluicegate.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (root, image that overrides) */}}
{{- define "sluicegate.image" -}}
{{- $root := index . 0 -}}
{{- $image := merge (dict) (index . 1) -}}
{{- $repository := default $root.Values.image.repository $image.repository -}}
{{- $digest := default (ternary "" $root.Values.image.digest (hasKey $image "repository")) $image.digest -}}
{{- if $digest -}}
{{- printf "%s@%s" $repository $digest -}}
{{- else -}}
{{- printf "%s:%s" $repository (default (default $root.Chart.AppVersion $root.Values.image.tag) $image.tag) -}}
{{- end -}}
{{- end -}}

{{/* Of whoever pulls a model, or calls the server: the gateway's, which is the smaller one. */}}
{{- define "sluicegate.clientImage" -}}
{{- include "sluicegate.image" (list . (ternary .Values.gateway.image dict (eq .Values.mode "split"))) -}}
{{- end -}}

{{/* What a HorizontalPodAutoscaler or ScaledObject scales. */}}
{{- define "sluicegate.scaleTarget" -}}
{{- if .Values.multiNode.enabled -}}
apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
name: {{ include "sluicegate.fullname" . }}-group
{{- else -}}
apiVersion: apps/v1
kind: Deployment
name: {{ include "sluicegate.fullname" . }}
{{- end -}}
{{- end -}}

{{- define "sluicegate.isScaled" -}}
{{- if or .Values.autoscaling.enabled .Values.keda.enabled -}}true{{- end -}}
{{- end -}}
