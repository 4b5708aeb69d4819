# The first process of a node: in its namespaces, and in process, mount and UTS namespaces of its own below
# them. It keeps a runtime, a kubelet and a proxy running, as an init system would; with it they all end.
# Arguments: the program of Kubernetes, the node's name, its addresses with commas, its labels.
set -u
trap '' TERM
kubernetes=$1 name=$2 addresses=$3

# Pods with host networking have the node's name as their host name.
echo "$name" >/proc/sys/kernel/hostname
# Pod mounts can propagate to other processes of the node, as on a separate machine.
mount --make-rshared /
mkdir -p /run/lab/sysctl /var/log/lab
# The file itself: the node's process tree hides the one over which it is bound.
cat /proc/sys/kernel/random/boot_id >/run/lab/boot_id
mount -t proc proc /proc
mount --bind /run/lab/boot_id /proc/sys/kernel/random/boot_id
# A kubelet sets these for the whole machine. Here it writes to files, and the machine is left as it is.
for key in vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops \
	kernel/keys/root_maxkeys kernel/keys/root_maxbytes; do
	file=/run/lab/sysctl/${key//\//.}
	cat "/proc/sys/$key" >"$file" && mount --bind "$file" "/proc/sys/$key"
done

keep() {
	local log=/var/log/lab/$1.log
	shift
	while :; do
		"$@" >>"$log" 2>&1 </dev/null
		echo "ended with $?; it is started again" >>"$log"
		sleep 1
	done
}

keep containerd containerd --config /var/lib/containerd/config.toml &
until [ -S /run/containerd/containerd.sock ]; do sleep 0.05; done
keep kubelet "$kubernetes" kubelet --config=/var/lib/kubelet/config.yaml \
	--kubeconfig=/var/lib/kubelet/kubeconfig --hostname-override="$name" --node-ip="$addresses" \
	--node-labels="$4" &
if [ -e /var/lib/kubelet/proxy.yaml ]; then
	keep kube-proxy "$kubernetes" kube-proxy --config=/var/lib/kubelet/proxy.yaml &
fi
# Orphans of the node become children of this shell, which waits for them.
while :; do wait; done
