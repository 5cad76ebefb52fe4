{{- define "nebulaio.name" -}}
{{- $name := printf "%s-%s" .Release.Name .Chart.Name }}
{{- if contains .Chart.Name .Release.Name }}{{ $name = .Release.Name }}{{ end }}
{{- $name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "nebulaio.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "nebulaio.labels" -}}
{{ include "nebulaio.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "nebulaio.authSecret" -}}
{{- if .Values.auth.existingSecret }}
{{- .Values.auth.existingSecret }}
{{- else }}
{{- $_ := required "auth: give auth.existingSecret, or auth.user and auth.password" (and .Values.auth.user .Values.auth.password) }}
{{- include "nebulaio.name" . }}-root
{{- end }}
{{- end }}

{{- define "nebulaio.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (include "nebulaio.name" .) }}
{{- end }}

{{/* The server's configuration: the values' own, and what the chart decides. */}}
{{- define "nebulaio.config" -}}
{{- $config := deepCopy .Values.config }}
{{- $own := dict "http" (dict "address" "0.0.0.0:9000") "admin" (dict "address" "0.0.0.0:9001") }}
{{- if .Values.tls.existingSecret }}
{{- $_ := set $own "https" (dict "address" "0.0.0.0:9443" "certificate" "/etc/nebulaio/tls/tls.crt" "key" "/etc/nebulaio/tls/tls.key") }}
{{- end }}
{{- if .Values.rdma.enabled }}
{{- $_ := set $own "rdma" (dict "enabled" true "device_name" .Values.rdma.deviceName "port" (int .Values.rdma.port)) }}
{{- end }}
{{- $auth := dict }}
{{- if .Values.accounts.existingSecret }}{{- $_ := set $auth "accounts_file" "/etc/nebulaio/accounts/accounts.yaml" }}{{- end }}
{{- if .Values.keys.secrets }}{{- $_ := set $auth "secrets_key_file" (printf "/etc/nebulaio/keys/%s" .Values.keys.secrets) }}{{- end }}
{{- if $auth }}{{- $_ := set $own "auth" $auth }}{{- end }}
{{- if .Values.keys.encryption }}{{- $_ := set $own "encryption" (dict "key_file" (printf "/etc/nebulaio/keys/%s" .Values.keys.encryption)) }}{{- end }}
{{- toYaml (mergeOverwrite $config $own) }}
{{- end }}

{{/* What makes no sense together is refused here, with the reason. */}}
{{- define "nebulaio.check" -}}
{{- if and .Values.ingress.enabled (ne (len .Values.ingress.hosts) (int .Values.servers)) }}
{{- fail (printf "ingress.hosts: %d names for %d servers; each server is a store of its own and needs its own name" (len .Values.ingress.hosts) (int .Values.servers)) }}
{{- end }}
{{- if and (or .Values.keys.encryption .Values.keys.secrets) (not .Values.keys.existingSecret) }}
{{- fail "keys: keys.encryption and keys.secrets name entries of keys.existingSecret, which is empty" }}
{{- end }}
{{- if (.Values.config.auth).root_password }}
{{- fail "config.auth: a ConfigMap is no place for the root user's password; use auth.existingSecret, or auth.user and auth.password" }}
{{- end }}
{{- end }}
