{{/* On one cluster objects of the two would take each other's names and pods. */}}
{{- define "ferrule.name" -}}
{{- range list "nameOverride" "fullnameOverride" -}}
{{- if eq (toString (get $.Values .)) "aws-node" -}}
{{- fail (printf "%s=aws-node is the name of amazon-vpc-cni's own objects, which may be on this cluster as well: leave it out" .) -}}
{{- end -}}
{{- end -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ferrule.fullname" -}}
{{- $name := include "ferrule.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "ferrule.controllerName" -}}
{{ include "ferrule.fullname" . }}-controller
{{- end -}}

{{- define "ferrule.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "ferrule.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- $account := required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- if and (eq $account "aws-node") .Values.nodeScope.create -}}
{{- fail "serviceAccount.name=aws-node is amazon-vpc-cni's account: nodeScope.create would hold what amazon-vpc-cni's own pods write; name an account of Ferrule's, or set nodeScope.create=false" -}}
{{- end -}}
{{- $account -}}
{{- end -}}
{{- end -}}

{{- define "ferrule.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: Helm
app.kubernetes.io/part-of: ferrule
{{- end -}}

{{- define "ferrule.selector" -}}
app.kubernetes.io/name: {{ include "ferrule.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ferrule.controllerSelector" -}}
app.kubernetes.io/name: {{ include "ferrule.name" . | trunc 52 | trimSuffix "-" }}-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* As amazon-vpc-cni names its image: override, or a repository of one's own, or a registry of ECR. */}}
{{- define "ferrule.image" -}}
{{- $image := .Values.image -}}
{{- $tag := default .Chart.AppVersion $image.tag -}}
{{- $account := include "ferrule.text" (default "" $image.account) -}}
{{- /* Values that were carried over from amazon-vpc-cni would have every node wait for an image that is not there. */ -}}
{{- if has $account (list "602401143452" "151742754352" "013241004608" "961992271922") -}}
{{- fail (printf "image.account=%s is where AWS keeps amazon-vpc-cni, and not Ferrule: name the account or the repository of your own that has its image" $account) -}}
{{- end -}}
{{- range list "override" "overrideRepository" -}}
{{- if contains "amazon-k8s-cni" (toString (get $image .)) -}}
{{- fail (printf "image.%s=%s is the image of amazon-vpc-cni: name that of Ferrule" . (get $image .)) -}}
{{- end -}}
{{- end -}}
{{- if $image.override -}}
{{- $image.override -}}
{{- else if $image.overrideRepository -}}
{{- printf "%s:%s" $image.overrideRepository $tag -}}
{{- else if $account -}}
{{- $region := required "image.region is needed with image.account" $image.region -}}
{{- printf "%s.dkr.%s.%s.%s/ferrule:%s" $account $image.endpoint $region $image.domain $tag -}}
{{- else -}}
{{- printf "localhost/ferrule:%s" $tag -}}
{{- end -}}
{{- end -}}

{{/* Whether network policy is held on nodes; a text that is empty for no. */}}
{{- define "ferrule.policy" -}}
{{- if and (eq (toString .Values.enableNetworkPolicy) "true") .Values.nodeAgent.enabled -}}true{{- end -}}
{{- end -}}

{{/* A value of the environment as text: Helm reads every number as a float. */}}
{{- define "ferrule.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ printf "%.0f" . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* A port is that port of every address, as amazon-vpc-cni's chart has it. */}}
{{- define "ferrule.bind" -}}
{{- $at := include "ferrule.text" . -}}
{{- if not (contains ":" $at) -}}:{{- end -}}
{{ $at }}
{{- end -}}

{{/* The environment that is given: `init.env`, and `env` over it. As JSON; `merge` would hold `false` to be nothing. */}}
{{- define "ferrule.given" -}}
{{- $given := deepCopy .Values.env -}}
{{- range $name, $value := .Values.init.env -}}
{{- if not (hasKey $given $name) }}{{ $_ := set $given $name $value }}{{ end -}}
{{- end -}}
{{- toJson $given -}}
{{- end -}}

{{/* NETWORK_POLICY_ENFORCING_MODE as the daemons get it, if they do. Without an agent amazon-vpc-cni does not look at it; with
one its default is `standard`, and that of Ferrule's daemons is not. */}}
{{- define "ferrule.policyMode" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- $mode := toString (default "" $given.NETWORK_POLICY_ENFORCING_MODE) -}}
{{- if include "ferrule.policy" . -}}
{{- default "standard" $mode -}}
{{- else if include "ferrule.isOn" (dict "root" . "name" "FERRULE_POLICY_AGENT") -}}
{{- $mode -}}
{{- else if .Values.nodeAgent.enabled -}}
{{- if eq (lower $mode) "strict" -}}
{{- fail "env.NETWORK_POLICY_ENFORCING_MODE=strict: nobody holds network policies, so pods would start open instead of closed; set enableNetworkPolicy, or env.FERRULE_POLICY_AGENT where aws-network-policy-agent runs, or leave the mode out" -}}
{{- end -}}
{{- $mode -}}
{{- end -}}
{{- end -}}

{{/* The environment, which all containers on a node share: `init.env`, and `env` over it. */}}
{{- define "ferrule.env" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- $mode := include "ferrule.policyMode" . -}}
{{- $idle := list "NETWORK_POLICY_ENFORCING_MODE" "AWS_EC2_ENDPOINT" "AWS_VPC_K8S_CNI_CONFIGURE_RPFILTER" "ENABLE_NFTABLES" "VPC_CNI_VERSION" "DISABLE_POD_V6" "AWS_VPC_K8S_EGRESS_V4_PLUGIN_LOG_FILE" "AWS_VPC_K8S_EGRESS_V6_PLUGIN_LOG_FILE" -}}
- name: MY_NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: MY_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- range $name, $value := $given }}
{{- if and (not (has $name $idle)) (not (kindIs "invalid" $value)) }}
- name: {{ $name }}
  value: {{ include "ferrule.text" $value | quote }}
{{- end }}
{{- end }}
{{- if $mode }}
- name: NETWORK_POLICY_ENFORCING_MODE
  value: {{ $mode | quote }}
{{- end }}
{{- if $given.AWS_EC2_ENDPOINT }}
- name: AWS_ENDPOINT_URL_EC2
  value: {{ $given.AWS_EC2_ENDPOINT | quote }}
{{- end }}
{{- if eq (include "ferrule.podsWithoutIPv6" .) "true" }}
- name: FERRULE_CHAINED_PLUGINS
  value: '[{"type":"tuning","sysctl":{"net.ipv6.conf.all.disable_ipv6":"1","net.ipv6.conf.default.disable_ipv6":"1","net.ipv6.conf.lo.disable_ipv6":"1"}}]'
{{- end }}
{{- if include "ferrule.policy" . }}
- name: FERRULE_POLICY
  value: "true"
- name: FERRULE_AGENT_BACKEND
  value: {{ .Values.policy.backend | quote }}
- name: FERRULE_AGENT_METRICS
  value: {{ include "ferrule.bind" .Values.nodeAgent.metricsBindAddr | quote }}
- name: FERRULE_AGENT_LOG_FILE
  value: {{ .Values.nodeAgent.networkPolicyAgentLogFileLocation | quote }}
- name: FERRULE_AGENT_LOGLEVEL
  value: {{ .Values.nodeAgent.logLevel | quote }}
- name: FERRULE_CONTROLLER_SERVICE
  value: {{ printf "%s/%s" .Release.Namespace (include "ferrule.controllerName" .) | quote }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* DISABLE_POD_V6 of amazon-vpc-cni chains the plugin `tuning`; so does this, unless plugins are named. */}}
{{- define "ferrule.podsWithoutIPv6" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- if eq (toString $given.DISABLE_POD_V6 | lower) "true" -}}
{{- if $given.FERRULE_CHAINED_PLUGINS -}}
{{- fail "env.DISABLE_POD_V6 and env.FERRULE_CHAINED_PLUGINS: name the plugin tuning among the latter instead" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* Whether a boolean of the environment is on, as Go's ParseBool reads it; a text that is empty for no. */}}
{{- define "ferrule.isOn" -}}
{{- $given := include "ferrule.given" .root | fromJson -}}
{{- if has (toString (get $given .name)) (list "1" "t" "T" "TRUE" "true" "True") -}}true{{- end -}}
{{- end -}}

{{/* The API server's token, for those containers alone that speak to it. */}}
{{- define "ferrule.tokenMount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{- define "ferrule.securityContext" -}}
{{- /* Dict: base, extra. */ -}}
{{ toYaml (mergeOverwrite .base (deepCopy .extra)) }}
{{- end -}}
