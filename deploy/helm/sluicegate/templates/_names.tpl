{{/* Names and labels. Selectors hold what never changes with a version: they are immutable. */}}

{{- define "sluicegate.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimAll "-" -}}
{{- end -}}

{{/* Short enough for what is put behind it: LeaderWorkerSet names pods NAME-group-0-1, and labels end at 63. What is cut
off counts still: releases with long names that begin alike have objects of their own. No dots, for Services. */}}
{{- define "sluicegate.fullname" -}}
{{- $name := include "sluicegate.name" . -}}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | replace "." "-" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if gt (len $full) 40 -}}
{{- printf "%s-%s" (trunc 33 $full | trimSuffix "-") (sha256sum .Release.Name | trunc 6) -}}
{{- else -}}
{{- $full -}}
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
app.kubernetes.io/name: {{ include "sluicegate.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
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

{{/* Of every object. */}}
{{- define "sluicegate.labels" -}}
{{ include "sluicegate.releaseLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* (root, labels of its own, which come before commonLabels) */}}
{{- define "sluicegate.labelsWith" -}}
{{- include "sluicegate.labels" (index . 0) | fromYaml | merge (deepCopy (default dict (index . 1))) | toYaml -}}
{{- end -}}

{{/* (root, image that overrides) */}}
{{- define "sluicegate.image" -}}
{{- $root := index . 0 -}}
{{- $image := default dict (index . 1) -}}
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

{{- define "sluicegate.metricsService" -}}
{{- include "sluicegate.fullname" . -}}-metrics
{{- end -}}

{{- define "sluicegate.isScaled" -}}
{{- if or .Values.autoscaling.enabled .Values.keda.enabled -}}true{{- end -}}
{{- end -}}
