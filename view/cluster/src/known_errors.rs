//! Known errors of pods that do not start: part of the message, the cause and the next step.
//!
//! The plugin's own errors name cause and next step. This table adds the origin, and explains messages of the kubelet
//! and the runtime. `docs/guide/troubleshooting.md` has the same table, by symptom.

use serde::Serialize;

/// Part of a message and its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownError {
    /// The literal part.
    pub part: &'static str,
    pub by: By,
    pub cause: &'static str,
    pub next_step: &'static str,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `ferrule-cni`, or `ferrule-ipamd` through the plugin.
    Us,
    /// The kubelet, the runtime or another plugin.
    Others,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub cause: &'static str,
    pub next_step: &'static str,
}

/// Returns the meaning of a message; `None` if it is unknown.
pub fn explain(message: &str) -> Option<Explanation> {
    let known = KNOWN_ERRORS.iter().find(|known| message.contains(known.part))?;
    Some(Explanation { cause: known.cause, next_step: known.next_step })
}

const fn us(part: &'static str, cause: &'static str, next_step: &'static str) -> KnownError {
    KnownError { part, by: By::Us, cause, next_step }
}

const fn others(part: &'static str, cause: &'static str, next_step: &'static str) -> KnownError {
    KnownError { part, by: By::Others, cause, next_step }
}

/// The command that lists Ferrule's pods with their nodes.
macro_rules! pods {
    () => {
        "kubectl -n kube-system get pods -o wide -l app.kubernetes.io/part-of=ferrule"
    };
}

/// The command that prints the log of a container of the node's pod.
macro_rules! logs {
    ($container:literal) => {
        concat!("kubectl -n kube-system logs POD -c ", $container)
    };
}

/// The known messages. The first match counts, so more specific entries come first.
pub const KNOWN_ERRORS: &[KnownError] = &[
    us(
        "has no free addresses",
        "the subnet of the node's ENIs is full",
        "free addresses in the subnet, use a larger one, or use several \
         (ENABLE_SUBNET_DISCOVERY, ENIConfig)",
    ),
    us(
        "has no assignable addresses, though EC2 counted",
        "the subnet's free addresses are reserved or too fragmented",
        "check the subnet's CIDR reservations, or use another subnet",
    ),
    us(
        "all ENIs are full, and the node has the",
        "the instance type has no room for more addresses",
        "use a larger type or prefixes (ENABLE_PREFIX_DELEGATION), raise MAX_ENI, or set the kubelet's \
         maxPods to what the type carries",
    ),
    us(
        "the node runs ",
        "the node has reached its limit of pods",
        "raise the kubelet's maxPods, or delete pods",
    ),
    us(
        " failed and is paused: ",
        "EC2 refuses a call that the daemon needs; the message has the call and EC2's error",
        "allow the action to the node's role (docs/guide/iam.md), or fix the cause that EC2 names: `ferrule status` \
         shows since when",
    ),
    us(
        " waits for its budget",
        "EC2 throttles the account, so the daemon reduces its call rate",
        "wait; if it lasts, find the most frequent caller in CloudTrail, or request a higher rate from AWS",
    ),
    us(
        "EC2 has not shown the node's ENIs yet",
        "the daemon cannot describe the node's ENIs",
        "check that the node reaches EC2's endpoint and that its role allows ec2:DescribeNetworkInterfaces",
    ),
    us(
        "ENIConfig ",
        "custom networking is on, and the node's ENIConfig is missing or refers to a missing object",
        "create or fix the ENIConfig that the message names",
    ),
    us(
        "no subnet of the zone may be used for pods",
        "the tags of the zone's subnets exclude all of them",
        "tag one with kubernetes.io/role/cni=1",
    ),
    others(
        "cni plugin not initialized",
        "the node has no network configuration: the daemon is not ready, or the conflist was removed",
        "`ferrule status` shows what the daemon waits for",
    ),
    others(
        "NetworkPluginNotReady",
        "the runtime has no ready network",
        "`ferrule status` shows what the daemon waits for",
    ),
    us(
        "is not ready: ",
        "an ENI was attached, but its link or its routes are missing",
        "check the ENI's attachment in EC2 and the node's kernel log; run `ferrule doctor` there",
    ),
    us(
        "the node is unschedulable: its pool stays as it is",
        "the pool of a cordoned node does not grow",
        "uncordon it, or set AWS_MANAGE_ENIS_NON_SCHEDULABLE=true",
    ),
    us(
        "the settings leave ENIs and addresses to another program",
        "DISABLE_NETWORK_RESOURCE_PROVISIONING or ENABLE_IMDS_ONLY_MODE is on",
        "add addresses to the node's ENIs, or unset it",
    ),
    us(
        "the daemon is still starting",
        "ferrule-ipamd waits for what the message names",
        "fix that; `ferrule status` shows the progress",
    ),
    us(
        "the daemon's socket",
        "ferrule-ipamd does not run on the node, or the plugin may not use its socket",
        concat!(pods!(), ", then ", logs!("ipamd")),
    ),
    us(
        "no answer from the daemon at",
        "ferrule-ipamd hangs, or the node is overloaded",
        concat!(logs!("ipamd"), "; if it lasts, delete its pod: its state is on disk"),
    ),
    us(
        "this side speaks protocol version",
        "plugin and daemon are more than one release apart",
        "finish the upgrade: the pod's init container installs the plugin",
    ),
    us(
        "the daemon has too many requests at once",
        "more pods start at once than the daemon accepts",
        "wait: the kubelet retries",
    ),
    us(
        "the reservation lapsed before the interface was built",
        "the node was too busy to build the interface in time",
        "wait: the kubelet retries; check the node's CPU if it lasts",
    ),
    us(
        "cannot connect to ferrule-agent at",
        "the mode is strict, and ferrule-agent does not run on the node",
        concat!(pods!(), ", then ", logs!("agent")),
    ),
    us(
        "ferrule-agent at",
        "the mode is strict, and the agent did not report the pod's policies in force",
        concat!(
            logs!("agent"),
            "; `ferrule policy status` shows which nodes follow the controller"
        ),
    ),
    us(
        "CNI_ARGS lacks K8S_POD_UID",
        "the runtime does not pass the pod's UID, which policy needs",
        "use containerd or CRI-O, or set FERRULE_POLICY=false",
    ),
    us(
        "the policy agent at",
        "aws-network-policy-agent did not confirm the pod",
        "kubectl -n kube-system logs POD -c aws-eks-nodeagent, for the policy agent's pod of the node, or set \
         FERRULE_POLICY_AGENT=false if it should not run",
    ),
    us(
        "the kernel has no VLANs",
        "the pod has security groups of its own, and the module 8021q is missing",
        "load 8021q on the node",
    ),
    us(
        "already exists in network namespace",
        "another plugin or a second runtime created the interface",
        "check the pod's networks; give one another interface name",
    ),
    us(
        "cannot be used: ",
        "the sandbox's network namespace was removed",
        "wait: the kubelet creates a new sandbox",
    ),
    us(
        "prevResult in the network configuration is not a result",
        "a plugin before ferrule-cni in the chain returned an invalid result",
        "check the first conflist in the runtime's conf_dir, by default /etc/cni/net.d",
    ),
    us(
        "in the network configuration ",
        "the conflist was changed",
        "delete 05-ferrule.conflist: it is recreated; change the daemon's settings instead",
    ),
    others(
        "failed to find plugin \"ferrule-cni\"",
        "the plugin is not in the runtime's plugin folder",
        concat!(logs!("install"), "; check that the runtime's bin_dir is the chart's cni.binPath"),
    ),
    others(
        "plugin type=\"aws-cni\"",
        "amazon-vpc-cni owns the node's network",
        "take the node over (docs/guide/migrate.md) or exclude it",
    ),
    others(
        "no networks found in",
        "the runtime's folder has no conflist",
        concat!(pods!(), ", then ", logs!("network")),
    ),
    others(
        "Too many pods",
        "every node that the pod can run on has reached its kubelet's limit",
        "add nodes, use a larger type, or use prefixes (ENABLE_PREFIX_DELEGATION) and raise the kubelet's \
         maxPods",
    ),
    others(
        "failed to pull and unpack image",
        "an image cannot be pulled; networking may not be the cause",
        "check the image name, its registry and the pull credentials",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubelets_words_around_ours_are_understood() {
        let message = "Failed to create pod sandbox: rpc error: code = Unknown desc = failed to setup \
            network for sandbox \"5ec\": plugin type=\"ferrule-cni\" name=\"aws-cni\" failed (add): no \
            address for shop/web: subnet subnet-1 has no free addresses; free addresses in the subnet";
        let explained = explain(message);
        assert_eq!(explained.map(|it| it.cause), Some("the subnet of the node's ENIs is full"));
        assert_eq!(explain("Successfully assigned shop/web to n1"), None);
    }

    #[test]
    fn a_kubelet_message_about_a_missing_network_is_no_eni_error() {
        let message = "network is not ready: container runtime network not ready: NetworkReady=false \
            reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
        let cause = explain(message).map(|it| it.cause).unwrap_or_default();
        assert!(cause.starts_with("the node has no network configuration"), "{cause}");
        let ours = explain("ENI eni-1 is not ready: its link does not come").map(|it| it.cause);
        let wanted = "an ENI was attached, but its link or its routes are missing";
        assert_eq!(ours, Some(wanted));
    }

    #[test]
    fn no_row_hides_behind_an_earlier_one() {
        for (index, known) in KNOWN_ERRORS.iter().enumerate() {
            let before = &KNOWN_ERRORS[..index];
            assert!(!before.iter().any(|it| known.part.contains(it.part)), "{}", known.part);
        }
    }
}
