{{- define "selector" -}}
app.kubernetes.io/name: robotsproxy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: proxy
{{- end }}

{{- define "store.selector" -}}
app.kubernetes.io/name: robotsproxy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: store
{{- end }}

{{- define "labels" -}}
app.kubernetes.io/name: robotsproxy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "store.own" -}}
{{- if and .Values.store.enabled (not .Values.store.url) }}true{{ end }}
{{- end }}

{{- /* What the proxy cannot reload. */ -}}
{{- define "config.fixed" -}}
listen: 0.0.0.0:8080
drain: {{ .Values.drainSeconds }}s
state_dir: /var/lib/robotsproxy/state
tls: # one CA for all replicas: clients do not choose the replica
  ca_cert: /etc/robotsproxy-ca/ca.pem
  ca_key: /etc/robotsproxy-ca/ca.key
admin:
  listen: 127.0.0.1:8081
  {{- if .Values.metrics.enabled }}
  metrics_listen: 0.0.0.0:8083
  {{- end }}
{{- if or (include "store.own" .) .Values.store.url }}
store:
  redis: {{ .Values.store.url | default (printf "redis://%s-store:6379" .Release.Name) | quote }}
  replicas: {{ .Values.replicas }}
{{- end }}
{{- end }}

{{- define "namespaces" -}}
{{- range . }}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ . }}}
{{- end }}
{{- end }}

{{- /* To resolve names. */ -}}
{{- define "dns" -}}
- to:
    - namespaceSelector:
        matchLabels: {kubernetes.io/metadata.name: kube-system}
      podSelector:
        matchLabels: {k8s-app: kube-dns}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
