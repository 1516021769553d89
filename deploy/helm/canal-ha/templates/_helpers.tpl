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
