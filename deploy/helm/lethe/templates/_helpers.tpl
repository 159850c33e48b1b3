{{- define "lethe.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "lethe.selector" -}}
app.kubernetes.io/name: lethe
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "lethe.labels" -}}
{{ include "lethe.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "lethe.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* What every pod of Lethe is: no token of the cluster, never root, nothing written but its own volumes. */}}
{{- define "lethe.pod" -}}
automountServiceAccountToken: false
# Else a Service named `lethe` gives each pod LETHE_PORT=tcp://..., which is a setting.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: { type: RuntimeDefault }
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lethe.container" -}}
image: {{ include "lethe.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: { drop: [ALL] }
{{- end }}

{{- define "lethe.env" -}}
- { name: LETHE_METADATA_URL, value: {{ .Values.metadata.url | quote }} }
# libpq reads it for the metadata alone: connections to stores are told what they may know.
- name: PGPASSWORD
  valueFrom:
    secretKeyRef: { name: {{ .Values.metadata.passwordSecret.name }}, key: {{ .Values.metadata.passwordSecret.key }} }
{{- if .Values.archive.enabled }}
- { name: LETHE_ARCHIVE_ROOT, value: /var/lib/lethe-archive }
{{- end }}
{{- if .Values.storeSecrets }}
- { name: LETHE_SECRETS_DIR, value: /run/lethe-secrets }
{{- end }}
{{- range $name, $value := .Values.settings }}
{{- $shown := $value }}
{{- /* A number of a file of values is a float: from a million on it would be written 1e+06, which is no setting. */}}
{{- if kindIs "float64" $value }}{{- if eq (floor $value) $value }}{{- $shown = printf "%.0f" $value }}{{- end }}{{- end }}
- { name: {{ $name }}, value: {{ $shown | quote }} }
{{- end }}
{{- end }}

{{- define "lethe.envFrom" -}}
{{- with .Values.settingsFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "lethe.mounts" -}}
- { name: data, mountPath: /var/lib/lethe }
- { name: tmp, mountPath: /tmp }
{{- if .Values.archive.enabled }}
- { name: archive, mountPath: /var/lib/lethe-archive }
{{- end }}
{{- if .Values.storeSecrets }}
- { name: store-secrets, mountPath: /run/lethe-secrets, readOnly: true }
{{- end }}
{{- end }}

{{- define "lethe.volumes" -}}
- { name: tmp, emptyDir: {} }
{{- if .Values.archive.enabled }}
- name: archive
  persistentVolumeClaim: { claimName: {{ .Values.archive.existingClaim | default (printf "%s-archive" (include "lethe.name" .)) }} }
{{- end }}
{{- with .Values.storeSecrets }}
- { name: store-secrets, secret: { secretName: {{ . }}, defaultMode: 0440 } }
{{- end }}
{{- end }}

{{/* Before either starts: the metadata are of this version's schema. Two at once wait for one another's lock. */}}
{{- define "lethe.migrate" -}}
- name: migrate
  {{- include "lethe.container" .root | nindent 2 }}
  args: [migrate]
  env: {{- include "lethe.env" .root | nindent 4 }}
  {{- include "lethe.envFrom" .root | nindent 2 }}
  resources: {{- toYaml .resources | nindent 4 }}
  volumeMounts: {{- include "lethe.mounts" .root | nindent 4 }}
{{- end }}
