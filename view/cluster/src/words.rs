//! What kubelet says of a pod that does not start, explained: its words, the cause, what to do.
//!
//! The plugin's own errors name cause and next step already; here stands what they come from, and what
//! others say around them. `docs/guide/troubleshooting.md` has the same table, by symptom.

use serde::Serialize;

/// A part of a message, and what it means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Part of the message, as it is written.
    pub said: &'static str,
    /// Whose words these are.
    pub by: By,
    /// What it comes from.
    pub cause: &'static str,
    /// What to do.
    pub next_step: &'static str,
}

/// Who says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// `ferrule-cni`, or `ferrule-ipamd` through it.
    Us,
    /// kubelet, the runtime or another plugin.
    Others,
}

/// A message, explained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explained {
    /// What it comes from.
    pub cause: &'static str,
    /// What to do.
    pub next_step: &'static str,
}

/// What a message means, if that is known.
pub fn explain(message: &str) -> Option<Explained> {
    let word = WORDS.iter().find(|word| message.contains(word.said))?;
    Some(Explained { cause: word.cause, next_step: word.next_step })
}

const fn us(said: &'static str, cause: &'static str, next_step: &'static str) -> Word {
    Word { said, by: By::Us, cause, next_step }
}

const fn others(said: &'static str, cause: &'static str, next_step: &'static str) -> Word {
    Word { said, by: By::Others, cause, next_step }
}

/// What is understood: the first that a message has counts, so what is more exact stands first.
pub const WORDS: &[Word] = &[
    us(
        "has no free addresses",
        "the subnet of the node's ENIs is full",
        "free addresses in the subnet, give the nodes a larger one, or let ENIs be in several \
         (ENABLE_SUBNET_DISCOVERY, ENIConfig)",
    ),
    us(
        "gives no more addresses, though EC2 counted",
        "the subnet's free addresses are in reservations or too scattered for what was asked",
        "look at the subnet's CIDR reservations, or give the nodes another subnet",
    ),
    us(
        "all ENIs are full, and the node has the",
        "the instance type has no room for more addresses",
        "use a larger type or prefixes (ENABLE_PREFIX_DELEGATION), raise MAX_ENI, or set the kubelet's \
         maxPods to what the type carries",
    ),
    us(
        "the node runs ",
        "as many pods have addresses as the node may run",
        "raise the kubelet's maxPods, or delete pods",
    ),
    us(
        " failed, and rests: ",
        "EC2 refuses a call that the daemon needs; the message names the call and EC2's words",
        "allow the action to the node's role (docs/guide/iam.md), or mend what EC2 names: `ferrule status` \
         says since when",
    ),
    us(
        " waits for its budget",
        "EC2 throttles the account, and the daemon calls less often",
        "wait; if it lasts, find in CloudTrail who calls most, or ask AWS for a higher rate",
    ),
    us(
        "EC2 has not shown the node's ENIs yet",
        "the daemon cannot describe the node's ENIs",
        "see that the node reaches EC2's endpoint and that its role may ec2:DescribeNetworkInterfaces",
    ),
    us(
        "ENIConfig ",
        "custom networking is on, and the node's ENIConfig is missing or names what does not exist",
        "create or mend the ENIConfig that the message names",
    ),
    us(
        "no subnet of the zone may be used for pods",
        "the tags of the zone's subnets leave none for pods",
        "tag one with kubernetes.io/role/cni=1",
    ),
    others(
        "cni plugin not initialized",
        "no network is installed on the node: the daemon is not ready, or the conflist is gone",
        "`ferrule status` tells what the daemon waits for",
    ),
    others(
        "NetworkPluginNotReady",
        "the runtime finds no network that is ready",
        "`ferrule status` tells what the daemon waits for",
    ),
    us(
        "is not ready: ",
        "an ENI was attached, and its link or its routes do not come",
        "look at the ENI's attachment in EC2 and at the node's kernel log; run `ferrule doctor` there",
    ),
    us(
        "the node is unschedulable: its pool stays as it is",
        "the node is cordoned, and a cordoned node's pool does not grow",
        "uncordon it, or set AWS_MANAGE_ENIS_NON_SCHEDULABLE=true",
    ),
    us(
        "the settings leave ENIs and addresses to somebody else",
        "DISABLE_NETWORK_RESOURCE_PROVISIONING or ENABLE_IMDS_ONLY_MODE is on",
        "add addresses to the node's ENIs, or unset it",
    ),
    us(
        "the daemon is still starting",
        "ferrule-ipamd waits for what the message names",
        "mend that; `ferrule status` tells how far it is",
    ),
    us(
        "the daemon's socket",
        "ferrule-ipamd does not run on the node, or its socket is not the plugin's to use",
        "kubectl -n kube-system get pods -o wide -l app.kubernetes.io/part-of=ferrule, and read the log of its \
         container ipamd",
    ),
    us(
        "no answer from the daemon at",
        "ferrule-ipamd runs and hangs, or the node is overloaded",
        "read its log; if it stays so, delete its pod: what it holds is on the disk",
    ),
    us(
        "this side speaks protocol version",
        "plugin and daemon are more than one release apart",
        "finish the upgrade: the plugin is put on the node by the pod's init container",
    ),
    us(
        "the daemon has too many requests at once",
        "more pods start at once than the daemon takes",
        "wait: kubelet tries again",
    ),
    us(
        "the reservation lapsed before the interface was built",
        "the node was too busy to build the interface in time",
        "wait: kubelet tries again; look at the node's CPU if it lasts",
    ),
    us(
        "ferrule-agent at",
        "policy is strict, and the node's agent did not say that the pod's policies hold",
        "read the log of the container agent on the node; `ferrule policy status` tells which nodes follow \
         the controller",
    ),
    us(
        "cannot connect to ferrule-agent at",
        "policy is strict, and ferrule-agent does not run on the node",
        "look at the container agent of the node's ferrule pod",
    ),
    us(
        "CNI_ARGS lacks K8S_POD_UID",
        "the runtime does not tell the pod's UID, by which policy knows it",
        "use containerd or CRI-O, or set FERRULE_POLICY=false",
    ),
    us(
        "the policy agent at",
        "aws-network-policy-agent did not take note of the pod",
        "read its log, or set FERRULE_POLICY_AGENT=false if it is not to run",
    ),
    us(
        "the kernel has no VLANs",
        "the pod has security groups of its own, and the module 8021q is not there",
        "load 8021q on the node",
    ),
    us(
        "already exists in network namespace",
        "another plugin or a second runtime has made the interface",
        "see which networks the pod is attached to; give one another interface name",
    ),
    us(
        "cannot be used: ",
        "the sandbox's network namespace has gone",
        "wait: kubelet makes a new sandbox",
    ),
    us(
        "prevResult in the network configuration is not a result",
        "a plugin before ferrule-cni in the chain answers wrongly",
        "look at the conflist that comes first in /etc/cni/net.d",
    ),
    us(
        "in the network configuration ",
        "somebody has changed the conflist",
        "delete 05-ferrule.conflist: it is written anew; set the daemon's settings instead",
    ),
    others(
        "failed to find plugin \"ferrule-cni\"",
        "the plugin is not in the runtime's folder of plugins",
        "see the init container install of the node's ferrule pod; is the runtime's bin_dir /opt/cni/bin?",
    ),
    others(
        "plugin type=\"aws-cni\"",
        "the node's network is amazon-vpc-cni's, not ours",
        "take the node over (docs/guide/migrate.md), or exclude it",
    ),
    others(
        "no networks found in",
        "there is no conflist in the runtime's folder",
        "see the container network of the node's ferrule pod",
    ),
    others(
        "Too many pods",
        "every node that the pod may be on runs as many pods as its kubelet takes",
        "add nodes, use a larger type, or use prefixes (ENABLE_PREFIX_DELEGATION) and raise the kubelet's \
         maxPods",
    ),
    others(
        "failed to pull and unpack image",
        "an image cannot be pulled; networking may have nothing to do with it",
        "see the image's name, its registry and the right to pull",
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
    fn what_kubelet_says_of_a_node_without_a_network_is_not_taken_for_an_eni_of_ours() {
        let message = "network is not ready: container runtime network not ready: NetworkReady=false \
            reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized";
        let cause = explain(message).map(|it| it.cause).unwrap_or_default();
        assert!(cause.starts_with("no network is installed on the node"), "{cause}");
        let ours = explain("ENI eni-1 is not ready: its link does not come").map(|it| it.cause);
        let wanted = "an ENI was attached, and its link or its routes do not come";
        assert_eq!(ours, Some(wanted));
    }

    #[test]
    fn no_row_hides_behind_an_earlier_one() {
        for (index, word) in WORDS.iter().enumerate() {
            let before = &WORDS[..index];
            assert!(!before.iter().any(|it| word.said.contains(it.said)), "{}", word.said);
        }
    }
}
