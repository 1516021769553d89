{{- define "canal-ha.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 50 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 50 | trimSuffix "-" }}{{ end }}
{{- end }}

{{- define "canal-ha.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "canal-ha.labels" -}}
{{ include "canal-ha.selector" . }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* HTTPS if TLS is on this port: (dict "values" .Values "port" "admin") */ -}}
{{- define "canal-ha.scheme" -}}
{{- if and .values.tls.secretName (has .port .values.tls.ports) }}HTTPS{{ else }}HTTP{{ end }}
{{- end }}

{{- /* the chart's own lines of canal.properties, as a map; .Values.properties override them */ -}}
{{- define "canal-ha.properties" -}}
canal.zkServers: {{ .Values.zookeeper.servers | quote }}
canal.destinations: {{ keys .Values.destinations | sortAlpha | join "," | quote }}
canal.auto.scan: "true"
canal.admin.http.bind: "0.0.0.0"
canal.log.dir: /canal/logs
canal.file.data.dir: /canal/data
{{- if .Values.insecure }}
canal.insecure: "true"
{{- else }}
canal.accounts.file: {{ printf "/canal/secrets/%s" .Values.accountsKey }}
{{- end }}
{{- if .Values.tls.secretName }}
canal.tls.cert: /canal/tls/tls.crt
canal.tls.key: /canal/tls/tls.key
{{- with .Values.tls.caKey }}
canal.tls.ca: {{ printf "/canal/tls/%s" . }}
{{- end }}
canal.tls.ports: {{ .Values.tls.ports | join "," | quote }}
{{- end }}
{{- end }}

{{- /* options with which `canal-ha status` in a pod sees the whole cluster */ -}}
{{- define "canal-ha.status-options" -}}
--zk {{ .Values.zookeeper.servers }}
{{- range $key, $option := dict "canal.zookeeper.auth" "--zk-auth-file" "canal.zookeeper.sasl" "--zk-sasl-file" }}
{{- with get $.Values.properties $key }} {{ $option }} {{ hasPrefix "${file:" . | ternary (. | trimPrefix "${file:" | trimSuffix "}") "FILE" }}{{ end }}
{{- end }}
{{- with get .Values.properties "canal.zookeeper.tls" }}{{ if eq (toString .) "true" }} --zk-tls{{ end }}{{ end }}
{{- range $part := list "ca" "cert" "key" }}
{{- with get $.Values.properties (printf "canal.zookeeper.tls.%s" $part) }} --zk-tls-{{ $part }} {{ . }}{{ end }}
{{- end }}
{{- if not .Values.insecure }}
{{- with .Values.serviceMonitor.tokenKey }} --token-file /canal/secrets/{{ . }}{{ else }} --user NAME --password-file FILE{{ end }}
{{- end }}
{{- if and .Values.tls.secretName .Values.tls.caKey (has "admin" .Values.tls.ports) }} --tls-ca /canal/tls/{{ .Values.tls.caKey }}{{ end }}
{{- end }}
