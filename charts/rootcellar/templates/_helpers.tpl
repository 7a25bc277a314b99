{{/* Where the garden's runtime cluster is a seed, too, both installations have cluster-scoped objects there. */}}
{{- define "rootcellar.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name }}{{ end -}}
{{- if include "rootcellar.isRuntimeCluster" . }}-runtime{{ end -}}
{{- end }}

{{/* What selects pods: it can never change, because a Deployment's selector cannot. */}}
{{- define "rootcellar.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{- define "rootcellar.labels" -}}
{{ include "rootcellar.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "rootcellar.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "rootcellar.name" .) "default" .Values.serviceAccount.create) -}}
{{- end }}

{{- define "rootcellar.image" -}}
{{- with .Values.image -}}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end }}

{{/* The garden's runtime cluster has objects of class garden; there Gardener says how important we are. */}}
{{- define "rootcellar.isRuntimeCluster" -}}
{{- if ((.Values.gardener).runtimeCluster).enabled }}yes{{ end -}}
{{- end }}

{{- define "rootcellar.classes" -}}
{{- if include "rootcellar.isRuntimeCluster" . }}garden{{ else }}{{ join "," .Values.classes }}{{ end -}}
{{- end }}

{{/* Gardener reads generated secrets in its own namespace, which is there wherever it installs the chart. */}}
{{- define "rootcellar.generatedSecretNamespaces" -}}
{{- $namespaces := .Values.generatedSecretNamespaces -}}
{{- if .Values.gardener }}{{ $namespaces = append $namespaces "garden" }}{{ end -}}
{{- dict "namespaces" (uniq $namespaces) | toYaml -}}
{{- end }}

{{/* The contracts that are served; each that there is has its rights in a file. */}}
{{- define "rootcellar.controllers" -}}
{{- $known := list -}}
{{- range $path, $_ := .Files.Glob "files/rights/*.yaml" }}{{ $known = append $known (base $path | trimSuffix ".yaml") }}{{ end -}}
{{- $known = without $known "operator" -}}
{{- range .Values.controllers }}
{{- if not (has . $known) }}{{ fail (printf "there is no controller %q: known are %s" . (join ", " $known)) }}{{ end }}
{{- end -}}
{{- dict "names" (.Values.controllers | default $known) | toYaml -}}
{{- end }}

{{/* Where the operator keeps buckets of the type local, and where Gardener has them mounted beside an etcd. */}}
{{- define "rootcellar.localBuckets" -}}
/etc/gardener/local-backupbuckets
{{- end }}

{{- define "rootcellar.priorityClass" -}}
{{- if include "rootcellar.isRuntimeCluster" . -}}
{{ .Values.gardener.runtimeCluster.priorityClassName }}
{{- else if .Values.gardener -}}
gardener-system-900
{{- else -}}
{{ .Values.priorityClass.name | default (ternary (include "rootcellar.name" .) "" .Values.priorityClass.create) }}
{{- end -}}
{{- end }}

{{/* Whether the chart makes a PriorityClass of its own: Gardener has its own. */}}
{{- define "rootcellar.makesPriorityClass" -}}
{{- if and .Values.priorityClass.create (not .Values.gardener) }}yes{{ end -}}
{{- end }}
