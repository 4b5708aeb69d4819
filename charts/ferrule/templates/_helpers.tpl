{{/* An override, or empty. `aws-node` is a default of amazon-vpc-cni's chart, and the name of its objects: in one cluster
the objects of both charts would collide. */}}
{{- define "ferrule.override" -}}
{{- if ne (toString .) "aws-node" }}{{ default "" . }}{{ end -}}
{{- end -}}

{{- define "ferrule.name" -}}
{{- default .Chart.Name (include "ferrule.override" .Values.nameOverride) | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "ferrule.fullname" -}}
{{- $name := include "ferrule.name" . -}}
{{- $whole := include "ferrule.override" .Values.fullnameOverride -}}
{{- if $whole -}}
{{- $whole | trunc 50 | trimSuffix "-" -}}
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
{{- $account := .Values.serviceAccount.name -}}
{{- if .Values.serviceAccount.create -}}
{{- $account = default (include "ferrule.fullname" .) $account -}}
{{- else -}}
{{- $account = required "serviceAccount.name is required if serviceAccount.create is false" $account -}}
{{- end -}}
{{- if and (eq $account "aws-node") .Values.nodeScope.create -}}
{{- fail "serviceAccount.name=aws-node is the account of amazon-vpc-cni: nodeScope.create would limit the writes of amazon-vpc-cni's pods; set another account, or nodeScope.create=false" -}}
{{- end -}}
{{- $account -}}
{{- end -}}

{{- define "ferrule.labels" -}}
{{- include "ferrule.labelsWith" (dict "root" . "more" dict) -}}
{{- end -}}

{{/* The labels of an object, with more labels of a value. Dict: root, more. */}}
{{- define "ferrule.labelsWith" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: Helm
app.kubernetes.io/part-of: ferrule
{{- with include "ferrule.moreLabels" . }}
{{ . }}
{{- end }}
{{- end -}}

{{/* The value commonLabels and the labels of another value, which have priority. Dict: root, more. */}}
{{- define "ferrule.moreLabels" -}}
{{- with mergeOverwrite (deepCopy (default dict .root.Values.commonLabels)) (default dict .more) -}}
{{ toYaml . }}
{{- end -}}
{{- end -}}

{{/* The same for pods. The chart selects them by its own labels. Dict: root, more, path (the value's name). */}}
{{- define "ferrule.morePodLabels" -}}
{{- $path := .path -}}
{{- range $key, $_ := .more -}}
{{- if has $key (list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/part-of" "app.kubernetes.io/component") -}}
{{- fail (printf "cannot use %s.%s: the chart selects its pods by this label; remove it from %s" $path $key $path) -}}
{{- end -}}
{{- end -}}
{{- include "ferrule.moreLabels" . -}}
{{- end -}}

{{/* Annotations of the DaemonSet's pods. EKS's webhook gives the role of the account to each container,
except the named ones. Only the daemon calls AWS. */}}
{{- define "ferrule.podAnnotations" -}}
{{- $annotations := deepCopy (default dict .Values.podAnnotations) -}}
{{- $key := "eks.amazonaws.com/skip-containers" -}}
{{- $given := splitList "," (default "" (get $annotations $key) | nospace) | compact -}}
{{- $_ := set $annotations $key (concat (list "agent" "install" "network" "uninstall") $given | uniq | join ",") -}}
{{ toYaml $annotations }}
{{- end -}}

{{- define "ferrule.selector" -}}
app.kubernetes.io/name: {{ include "ferrule.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "ferrule.controllerSelector" -}}
app.kubernetes.io/name: {{ include "ferrule.name" . | trunc 52 | trimSuffix "-" }}-controller
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* "true" for an account in which AWS publishes amazon-vpc-cni, else empty. */}}
{{- define "ferrule.isAmazonsAccount" -}}
{{- if has (include "ferrule.text" (default "" .)) (list "602401143452" "151742754352" "013241004608" "961992271922") -}}true{{- end -}}
{{- end -}}

{{/* The image's name, with the values of amazon-vpc-cni: override, or another repository, or a registry of ECR. There is no
default: nodes would wait for an image that no registry has. */}}
{{- define "ferrule.image" -}}
{{- $image := .Values.image -}}
{{- $tag := default .Chart.AppVersion $image.tag -}}
{{- $account := include "ferrule.text" (default "" $image.account) -}}
{{- $ofAmazon := include "ferrule.isAmazonsAccount" $image.account -}}
{{- $next := printf "set image.override to your image of Ferrule, for example --set image.override=REGISTRY/ferrule:%s" .Chart.AppVersion -}}
{{- range list "override" "overrideRepository" -}}
{{- if contains "amazon-k8s-cni" (toString (get $image .)) -}}
{{- fail (printf "cannot use image.%s=%s: it is the image of amazon-vpc-cni; %s" . (get $image .) $next) -}}
{{- end -}}
{{- end -}}
{{- if $image.override -}}
{{- if not (regexMatch "[:@][^/]+$" $image.override) -}}
{{- fail (printf "cannot use image.override=%s: it has no tag and no digest, so each node would run the image that is :latest when it pulls; append a tag or a digest, for example %s:%s" $image.override $image.override .Chart.AppVersion) -}}
{{- end -}}
{{- $image.override -}}
{{- else if $image.overrideRepository -}}
{{- if regexMatch "[:@][^/]+$" $image.overrideRepository -}}
{{- fail (printf "cannot use image.overrideRepository=%s: it ends with a tag or a digest, and the chart appends image.tag; set image.override to the whole name instead" $image.overrideRepository) -}}
{{- end -}}
{{- if and $ofAmazon (regexMatch "^v[0-9]+[.]" (toString $tag)) -}}
{{- fail (printf "cannot use image.tag=%s: it is a release of amazon-vpc-cni, as image.account=%s shows; set image.tag to the tag of your image of Ferrule" $tag $account) -}}
{{- end -}}
{{- printf "%s:%s" $image.overrideRepository $tag -}}
{{- else if $ofAmazon -}}
{{- fail (printf "cannot use image.account=%s: AWS publishes amazon-vpc-cni there, and no image of Ferrule; %s" $account $next) -}}
{{- else if $account -}}
{{- $region := required "image.region is needed with image.account" $image.region -}}
{{- printf "%s.dkr.%s.%s.%s/ferrule:%s" $account $image.endpoint $region $image.domain $tag -}}
{{- else -}}
{{- fail (printf "cannot choose an image: image.override, image.overrideRepository and image.account are not set; %s" $next) -}}
{{- end -}}
{{- end -}}

{{/* "true" if a block of image values names an image of the operator, else empty: an untouched block of amazon-vpc-cni's
values file needs no note. */}}
{{- define "ferrule.isOwnImage" -}}
{{- $image := default dict . -}}
{{- if or $image.override $image.overrideRepository (and $image.account (not (include "ferrule.isAmazonsAccount" $image.account))) -}}true{{- end -}}
{{- end -}}

{{/* "true" if a probe has a command of the operator. amazon-vpc-cni's own is a health check, as the chart's is. */}}
{{- define "ferrule.isOwnProbe" -}}
{{- if hasKey (default dict .) "exec" -}}
{{- if ne (toString (first (default (list "") .exec.command))) "/app/grpc-health-probe" -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if nodes receive network policy, else empty. */}}
{{- define "ferrule.policy" -}}
{{- if eq (toString .Values.enableNetworkPolicy) "true" -}}
{{- if .Values.nodeAgent.enabled -}}
{{- if include "ferrule.isOn" (dict "root" . "name" "FERRULE_POLICY_AGENT") -}}
{{- fail "cannot use env.FERRULE_POLICY_AGENT=true with enableNetworkPolicy=true and nodeAgent.enabled=true: two agents would enforce network policies on each pod; remove env.FERRULE_POLICY_AGENT, or set nodeAgent.enabled=false if aws-network-policy-agent runs" -}}
{{- end -}}
true
{{- else if not (include "ferrule.isOn" (dict "root" . "name" "FERRULE_POLICY_AGENT")) -}}
{{- fail "cannot use enableNetworkPolicy=true with nodeAgent.enabled=false: no agent would enforce network policies; set nodeAgent.enabled=true, or enableNetworkPolicy=false, or env.FERRULE_POLICY_AGENT=true if aws-network-policy-agent runs" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* "true" if agents enforce policy by eBPF programs, else empty. */}}
{{- define "ferrule.ebpf" -}}
{{- if and (include "ferrule.policy" .) (eq .Values.policy.backend "ebpf") -}}true{{- end -}}
{{- end -}}

{{/* The agent's resources. The kernel counts eBPF maps as memory of the container, so the default request depends on the
backend. With a smaller limit of maps it is that limit, because a memory limit of the container can be smaller too. An
operator's own request or limit stays. */}}
{{- define "ferrule.agentResources" -}}
{{- $resources := deepCopy (default dict .Values.nodeAgent.resources) -}}
{{- $request := 32 -}}
{{- if include "ferrule.ebpf" . -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- $maps := int (default "128" (toString (default "" $given.FERRULE_AGENT_MAP_MEMORY))) -}}
{{- $request = min $maps 128 -}}
{{- $needed := add $maps 48 -}}
{{- $limit := toString (dig "limits" "memory" "" $resources) -}}
{{- $unit := regexFind "[A-Za-z]*$" $limit -}}
{{- $units := dict "" 1.0 "k" 1e3 "Ki" 1024.0 "M" 1e6 "Mi" 1048576.0 "G" 1e9 "Gi" 1073741824.0 -}}
{{- if and $limit (hasKey $units $unit) -}}
{{- $bytes := mulf (float64 (trimSuffix $unit $limit)) (get $units $unit) -}}
{{- if lt $bytes (mulf (float64 $needed) 1048576.0) -}}
{{- fail (printf "nodeAgent.resources.limits.memory=%s: the limit of eBPF maps is %d MiB (FERRULE_AGENT_MAP_MEMORY), and the agent needs 48 MiB; set %dMi at least, or a smaller env.FERRULE_AGENT_MAP_MEMORY" $limit $maps $needed) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $resources.requests (not (get $resources.requests "memory")) -}}
{{- $_ := set $resources.requests "memory" (printf "%dMi" $request) -}}
{{- end -}}
{{- if $resources }}{{ toYaml $resources }}{{ end -}}
{{- end -}}

{{/* A value of the environment as text: Helm reads every number as a float. */}}
{{- define "ferrule.text" -}}
{{- if kindIs "float64" . -}}
{{- if eq (floor .) . -}}{{ printf "%.0f" . }}{{- else -}}{{ . }}{{- end -}}
{{- else -}}
{{ . }}
{{- end -}}
{{- end -}}

{{/* A port alone means all addresses, as in amazon-vpc-cni's chart. */}}
{{- define "ferrule.bind" -}}
{{- $at := include "ferrule.text" . -}}
{{- if not (contains ":" $at) -}}:{{- end -}}
{{ $at }}
{{- end -}}

{{/* The user's environment as JSON: `init.env`, overridden by `env`. `merge` would drop the value `false`. */}}
{{- define "ferrule.given" -}}
{{- $given := deepCopy (default dict .Values.env) -}}
{{- range $name, $value := .Values.init.env -}}
{{- if not (hasKey $given $name) }}{{ $_ := set $given $name $value }}{{ end -}}
{{- end -}}
{{- toJson $given -}}
{{- end -}}

{{/* NETWORK_POLICY_ENFORCING_MODE for the daemons, or empty. Without an agent amazon-vpc-cni ignores it. With an agent its
default is `standard`; the daemons have no such default. */}}
{{- define "ferrule.policyMode" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- $mode := toString (default "" $given.NETWORK_POLICY_ENFORCING_MODE) -}}
{{- if include "ferrule.policy" . -}}
{{- default "standard" $mode -}}
{{- else if include "ferrule.isOn" (dict "root" . "name" "FERRULE_POLICY_AGENT") -}}
{{- $mode -}}
{{- else if .Values.nodeAgent.enabled -}}
{{- if eq (lower $mode) "strict" -}}
{{- fail "env.NETWORK_POLICY_ENFORCING_MODE=strict: no agent receives network policies, so pods would start open instead of closed; set enableNetworkPolicy, or env.FERRULE_POLICY_AGENT if aws-network-policy-agent runs, or remove the mode" -}}
{{- end -}}
{{- $mode -}}
{{- end -}}
{{- end -}}

{{/* A folder of the host: the chart's value, or amazon-vpc-cni's variable, which has the path below the mount point /host.
Dict: root, path (the value's name), variable, default. */}}
{{- define "ferrule.cniFolder" -}}
{{- $value := get .root.Values.cni (splitList "." .path | last) -}}
{{- $folder := toString $value -}}
{{- $name := .path -}}
{{- $given := toString (default "" (get (include "ferrule.given" .root | fromJson) .variable)) -}}
{{- if $given -}}
{{- if not (hasPrefix "/host/" $given) -}}
{{- fail (printf "cannot use env.%s=%s: the chart mounts the host's folders below /host; set %s to the folder of the host" .variable $given .path) -}}
{{- end -}}
{{- $name = printf "env.%s" .variable -}}
{{- $folder = trimPrefix "/host" $given -}}
{{- if not (has $value (list .default $folder)) -}}
{{- fail (printf "cannot choose between %s=%s and env.%s=%s: they are different folders; remove one of them" .path $value .variable $given) -}}
{{- end -}}
{{- end -}}
{{- $folder = trimSuffix "/" $folder -}}
{{- if or (not (regexMatch "^(/[A-Za-z0-9._+-]+)+$" $folder)) (regexMatch "(^|/)[.][.]?(/|$)" $folder) -}}
{{- fail (printf "cannot use %s=%s: it is not an absolute path of a folder; set the folder that the node's container runtime uses, for example %s" $name (default $value $given) .default) -}}
{{- end -}}
{{ $folder }}
{{- end -}}

{{- define "ferrule.binFolder" -}}
{{ include "ferrule.cniFolder" (dict "root" . "path" "cni.binPath" "variable" "HOST_CNI_BIN_PATH" "default" "/opt/cni/bin") }}
{{- end -}}

{{- define "ferrule.confFolder" -}}
{{ include "ferrule.cniFolder" (dict "root" . "path" "cni.confPath" "variable" "HOST_CNI_CONFDIR_PATH" "default" "/etc/cni/net.d") }}
{{- end -}}

{{/* Mounts of both folders for the installer. */}}
{{- define "ferrule.cniMounts" -}}
- { name: cni-bin, mountPath: /host{{ include "ferrule.binFolder" . }} }
- { name: cni-conf, mountPath: /host{{ include "ferrule.confFolder" . }} }
{{- end -}}

{{/* The environment of all containers of a node. */}}
{{- define "ferrule.env" -}}
{{- $own := include "ferrule.ownEnv" . -}}
{{- include "ferrule.checkExtraEnv" (dict "root" . "own" ($own | fromYamlArray)) -}}
{{ $own }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Refuses names of `extraEnv` that templates read or that are set twice. Kubernetes uses the last entry of a name, and some
clients refuse a second one. Dict: root, own (the other variables). */}}
{{- define "ferrule.checkExtraEnv" -}}
{{- $values := .root.Values -}}
{{- $refused := include "ferrule.refusedInExtraEnv" . | fromJson -}}
{{- $names := list -}}
{{- range .own }}{{ $names = append $names .name }}{{ end -}}
{{- range $values.extraEnv -}}
{{- $name := .name -}}
{{- if hasKey $refused $name -}}
{{- fail (printf "cannot set %s in extraEnv: %s" $name (get $refused $name)) -}}
{{- else if has $name $names -}}
{{- $by := "the chart or another entry of extraEnv" -}}
{{- range $path, $map := dict "env" $values.env "init.env" $values.init.env -}}
{{- if hasKey (default dict $map) $name }}{{ $by = printf "%s.%s" $path $name }}{{ end -}}
{{- end -}}
{{- fail (printf "cannot set %s in extraEnv: %s sets it too; remove one of them" $name $by) -}}
{{- end -}}
{{- $names = append $names $name -}}
{{- end -}}
{{- end -}}

{{/* The environment without `extraEnv`: `init.env`, overridden by `env`, and the variables of the chart. */}}
{{- define "ferrule.ownEnv" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- $mode := include "ferrule.policyMode" . -}}
{{- $idle := list "HOST_CNI_BIN_PATH" "HOST_CNI_CONFDIR_PATH" "NETWORK_POLICY_ENFORCING_MODE" "AWS_EC2_ENDPOINT" "AWS_VPC_K8S_CNI_CONFIGURE_RPFILTER" "ENABLE_NFTABLES" "VPC_CNI_VERSION" "DISABLE_POD_V6" "AWS_VPC_K8S_EGRESS_V4_PLUGIN_LOG_FILE" "AWS_VPC_K8S_EGRESS_V6_PLUGIN_LOG_FILE" -}}
- name: MY_NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: spec.nodeName
- name: MY_POD_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: HOST_CNI_BIN_PATH
  value: /host{{ include "ferrule.binFolder" . }}
- name: HOST_CNI_CONFDIR_PATH
  value: /host{{ include "ferrule.confFolder" . }}
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
{{- if include "ferrule.ebpf" . }}
- name: FERRULE_AGENT_BPF_PINS
  value: /host/sys/fs/bpf/ferrule/maps
{{- if include "ferrule.services" . }}
- name: FERRULE_AGENT_CGROUP
  value: /host/sys/fs/cgroup
{{- end }}
{{- if not (kindIs "invalid" .Values.nodeAgent.conntrackCacheTableSize) }}
- name: FERRULE_AGENT_CONNECTIONS
  value: {{ include "ferrule.text" .Values.nodeAgent.conntrackCacheTableSize | quote }}
{{- end }}
{{- if not (kindIs "invalid" .Values.nodeAgent.conntrackCacheCleanupPeriod) }}
- name: FERRULE_AGENT_CONNECTION_SWEEP
  value: {{ include "ferrule.text" .Values.nodeAgent.conntrackCacheCleanupPeriod | quote }}
{{- end }}
{{- end }}
- name: FERRULE_AGENT_METRICS
  value: {{ include "ferrule.bind" .Values.nodeAgent.metricsBindAddr | quote }}
- name: FERRULE_AGENT_LOG_FILE
  value: {{ .Values.nodeAgent.networkPolicyAgentLogFileLocation | quote }}
- name: FERRULE_AGENT_LOGLEVEL
  value: {{ .Values.nodeAgent.logLevel | quote }}
- name: FERRULE_AGENT_POLICY_EVENT_LOGS
  value: {{ .Values.nodeAgent.enablePolicyEventLogs | quote }}
- name: FERRULE_CONTROLLER_SERVICE
  value: {{ printf "%s/%s" .Release.Namespace (include "ferrule.controllerName" .) | quote }}
{{- end }}
{{- end -}}

{{/* DISABLE_POD_V6 chains the plugin `tuning`, as in amazon-vpc-cni. It conflicts with a list of plugins. */}}
{{- define "ferrule.podsWithoutIPv6" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- if eq (toString $given.DISABLE_POD_V6 | lower) "true" -}}
{{- if $given.FERRULE_CHAINED_PLUGINS -}}
{{- fail "env.DISABLE_POD_V6 and env.FERRULE_CHAINED_PLUGINS: add the plugin tuning to the latter instead" -}}
{{- end -}}
true
{{- end -}}
{{- end -}}

{{/* "true" if a boolean of the environment is on, as Go's ParseBool reads it, else empty. */}}
{{- define "ferrule.isOn" -}}
{{- $given := include "ferrule.given" .root | fromJson -}}
{{- if has (toString (get $given .name)) (list "1" "t" "T" "TRUE" "true" "True") -}}true{{- end -}}
{{- end -}}

{{/* Not empty if the agents serve Services. Then no program of the node's network may depend on a Service. */}}
{{- define "ferrule.services" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- if eq (toString (get $given "FERRULE_SERVICES")) "ebpf" -}}
{{- if not (include "ferrule.ebpf" .) -}}
{{- fail "cannot use env.FERRULE_SERVICES=ebpf: no agent has the backend ebpf; set enableNetworkPolicy=true and policy.backend=ebpf" -}}
{{- end -}}
{{- if not $given.CLUSTER_ENDPOINT -}}
{{- fail "cannot use env.FERRULE_SERVICES=ebpf: env.CLUSTER_ENDPOINT is not set, and the nodes themselves serve the Service of the API server; set env.CLUSTER_ENDPOINT to the API server's own URL" -}}
{{- end -}}
ebpf
{{- end -}}
{{- end -}}

{{/* The port of the API server's URL in the environment, or empty. */}}
{{- define "ferrule.endpointPort" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- regexFind ":[0-9]+/?$" (toString (default "" $given.CLUSTER_ENDPOINT)) | trimPrefix ":" | trimSuffix "/" -}}
{{- end -}}

{{/* The environment of a controller without `controller.extraEnv`. */}}
{{- define "ferrule.controllerEnv" -}}
{{- $controller := .Values.controller -}}
- name: POD_NAMESPACE
  valueFrom: { fieldRef: { fieldPath: metadata.namespace } }
- name: POD_NAME
  valueFrom: { fieldRef: { fieldPath: metadata.name } }
- name: POD_IP
  valueFrom: { fieldRef: { fieldPath: status.podIP } }
- name: FERRULE_CONTROLLER_AGENTS
  value: {{ printf "%s/%s" .Release.Namespace (include "ferrule.serviceAccount" .) | quote }}
{{- if $controller.view }}
- name: FERRULE_CONTROLLER_VIEW
  value: "[::]:61692"
{{- end }}
{{- with (include "ferrule.given" . | fromJson).CLUSTER_ENDPOINT }}
- name: FERRULE_CONTROLLER_API_SERVER
  value: {{ . | quote }}
{{- end }}
{{- with include "ferrule.services" . }}
- name: FERRULE_CONTROLLER_SERVICES
  value: {{ . | quote }}
{{- end }}
- name: FERRULE_CONTROLLER_LOG_LEVEL
  value: {{ $controller.logLevel | quote }}
{{- end -}}

{{/* The whole environment of a controller. A second entry of a name would replace the first one. */}}
{{- define "ferrule.wholeControllerEnv" -}}
{{- $own := include "ferrule.controllerEnv" . -}}
{{- $names := list -}}
{{- range $own | fromYamlArray }}{{ $names = append $names .name }}{{ end -}}
{{- range .Values.controller.extraEnv -}}
{{- if has .name $names -}}
{{- fail (printf "cannot set %s in controller.extraEnv: the chart or another entry of controller.extraEnv sets it too; remove one of them" .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{ $own }}
{{- with .Values.controller.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* "true" if the URL of the API server in the environment has a name instead of an address, else empty. */}}
{{- define "ferrule.endpointHasName" -}}
{{- $given := include "ferrule.given" . | fromJson -}}
{{- $host := regexReplaceAll "^[A-Za-z]+://" (toString (default "" $given.CLUSTER_ENDPOINT)) "" -}}
{{- if and $host (not (regexMatch `^(\[|[0-9.]+(:|/|$))` $host)) -}}true{{- end -}}
{{- end -}}

{{/* The token for the API server, only for containers that use it. */}}
{{- define "ferrule.tokenMount" -}}
- name: token
  mountPath: /var/run/secrets/kubernetes.io/serviceaccount
  readOnly: true
{{- end -}}

{{/* An admission policy with its binding, for one account. The files are generated; config/manifests has the same policies. */}}
{{- define "ferrule.scope" -}}
{{- $text := .root.Files.Get .file | replace "${NAME}" (include "ferrule.fullname" .root) | replace "${NAMESPACE}" .root.Release.Namespace | replace "${ACCOUNT}" .account | replace "${TAINT}" .taint -}}
{{- range splitList "\n---\n" $text }}
{{- $object := fromYaml . }}
{{- $_ := set $object.metadata "labels" (include "ferrule.labels" $.root | fromYaml) }}
---
{{ toYaml $object }}
{{- end }}
{{- end -}}

{{- define "ferrule.securityContext" -}}
{{- /* Dict: base, extra. */ -}}
{{ toYaml (mergeOverwrite .base (deepCopy (default dict .extra))) }}
{{- end -}}
