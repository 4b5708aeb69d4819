//! Dual egress on whole nodes with a strict router and a host outside the VPC. Pods reach destinations of the other
//! family with the node's address. Other pods cannot reach a pod by its second address.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// The lab's one host on the internet. It answers the addresses of ENIs only. The VPC drops packets with other sources.
const OUTSIDE: &str = "192.0.2.1";
const OUTSIDE_V6: &str = "2001:db8:ffff::1";

const IPV6: &[&str] = &[
    "--env",
    "ENABLE_IPv6=true",
    "--env",
    "ENABLE_IPv4=false",
    "--env",
    "ENABLE_PREFIX_DELEGATION=true",
];

/// A family of pods, with the other family that they reach.
struct Side {
    /// Options for the nodes.
    env: &'static [&'static str],
    outside: &'static str,
    /// The start of the pods' second addresses.
    range: &'static str,
    /// The family of the second addresses as an option of `ip`.
    ip: &'static str,
    /// The same family in `nft`.
    table: &'static str,
    off: &'static str,
}

const TO_IPV4: Side = Side {
    env: IPV6,
    outside: OUTSIDE,
    range: "169.254.17",
    ip: "-4",
    table: "ip",
    off: "ENABLE_V4_EGRESS=false",
};

const TO_IPV6: Side = Side {
    env: &["--env", "ENABLE_V6_EGRESS=true"],
    outside: OUTSIDE_V6,
    range: "fd66:6572:7275:6c65:",
    ip: "-6",
    table: "ip6",
    off: "ENABLE_V6_EGRESS=false",
};

/// Returns true if the pod gets an echo over TCP.
fn gets_echo(lab: &Lab, pod: &str, host: &str, port: u16) -> bool {
    let script = format!(
        "exec 3<>/dev/tcp/{host}/{port} && echo hello >&3 && read -t 5 line <&3 && [ \"$line\" = hello ]"
    );
    lab.run(&["exec", pod, "--", "timeout", "5", "bash", "-c", &script]).is_ok()
}

fn names(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let name = |pod: &serde_json::Value| Some(pod["name"].as_str()?.to_owned());
    lab.pods(node)?.iter().map(|pod| name(pod).context("a pod without a name")).collect()
}

impl Side {
    fn all_get_echo(&self, lab: &Lab, node: &str) -> Result<()> {
        for pod in names(lab, node)? {
            let what = format!("an echo from {} to {pod}", self.outside);
            wait_for(&what, PATIENCE, || Ok(gets_echo(lab, &pod, self.outside, 7)))?;
        }
        Ok(())
    }

    /// Returns the pod's second address.
    fn second(&self, lab: &Lab, pod: &str) -> Result<String> {
        let shown = lab.run(&["exec", pod, "--", "ip", "-o", self.ip, "addr", "show", "eth0"])?;
        let mut words = shown.split_whitespace().filter(|word| word.starts_with(self.range));
        let address =
            words.next().with_context(|| format!("{pod} has no second address: {shown}"))?;
        Ok(address.split('/').next().unwrap_or(address).to_owned())
    }

    /// Returns the node's routes to second addresses.
    fn routes(&self, lab: &Lab, node: &str) -> Result<Vec<String>> {
        let shown = lab.on_node(node, &["ip", self.ip, "route", "show"])?;
        let own = shown.lines().filter(|line| line.starts_with(self.range));
        Ok(own.map(str::to_owned).collect())
    }

    fn has_table(&self, lab: &Lab, node: &str) -> Result<bool> {
        let listed = lab.on_node(node, &["nft", "list", "tables"])?;
        Ok(listed.contains(&format!("table {} ferrule-egress", self.table)))
    }

    fn test(&self, name: &str, lab: &str) -> Result<()> {
        let Some(bin) = programs(name) else { return Ok(()) };
        let lab = Lab::up(&bin, lab, &[&["--nodes", "1", "--ipv6"], self.env].concat())?;
        lab.run(&["pod", "add", "node1", "--count", "3"])?;
        self.all_get_echo(&lab, "node1")?;
        // Pods reach each other by their VPC addresses.
        lab.run(&["check", "--tcp", "2"])?;
        lab.run(&["pod", "check"])?;
        let pods = names(&lab, "node1")?;
        let [first, second, ..] = &pods[..] else { anyhow::bail!("{pods:?}") };
        for pod in lab.pods("node1")? {
            let addresses = pod["addresses"].to_string();
            ensure!(
                !addresses.contains(self.range),
                "the result has a second address: {addresses}"
            );
        }
        self.refuses_other_pods(&lab, first, second)?;
        self.is_repaired(&lab, first)?;
        self.is_removed_with_the_pods(&lab)?;
        self.is_removed_with_the_setting(&lab)?;
        lab.down()
    }

    /// Checks that the node reaches a pod by its second address and another pod does not. The pod counts the packets,
    /// because both clients get a reset: no process listens on the port.
    fn refuses_other_pods(&self, lab: &Lab, from: &str, to: &str) -> Result<()> {
        let address = self.second(lab, to)?;
        ensure!(address != self.second(lab, from)?, "two pods have {address}");
        let count = format!(
            "add table inet seen; add chain inet seen in {{ type filter hook input priority 0; }}; \
             add rule inet seen in {} daddr {address} tcp dport 9 counter",
            self.table
        );
        lab.run(&["exec", to, "--", "nft", &count])?;
        let came = || -> Result<bool> {
            let listed = lab.run(&["exec", to, "--", "nft", "list", "table", "inet", "seen"])?;
            ensure!(listed.contains("counter packets"), "{listed}");
            Ok(!listed.contains("counter packets 0 "))
        };
        let knock = format!("timeout 3 bash -c 'exec 3<>/dev/tcp/{address}/9' || true");
        lab.run(&["exec", from, "--", "sh", "-c", &knock])?;
        ensure!(!came()?, "{from} reaches {to} by {address}");
        lab.on_node("node1", &["sh", "-c", &knock])?;
        ensure!(came()?, "the node does not reach {to} by {address}");
        Ok(())
    }

    /// Checks that the daemon repairs drift on the node.
    fn is_repaired(&self, lab: &Lab, pod: &str) -> Result<()> {
        let before = self.routes(lab, "node1")?;
        let address = self.second(lab, pod)?;
        let route = before.iter().find(|route| route.split(' ').next() == Some(&address));
        let route = route.with_context(|| format!("no route to {address} in {before:?}"))?;
        let veth = route.split_whitespace().skip_while(|word| *word != "dev").nth(1);
        let veth = veth.with_context(|| format!("a route without a link: {route}"))?;
        let down_and_up = format!("ip link set {veth} down && ip link set {veth} up");
        let table = format!("nft delete table {} ferrule-egress", self.table);
        let delete = format!("ip {} route del {address} dev {veth}", self.ip);
        for harm in [delete, table, down_and_up] {
            lab.on_node("node1", &["sh", "-c", &harm])?;
            wait_for(&format!("the repair after `{harm}`"), PATIENCE, || {
                Ok(self.routes(lab, "node1")?.len() == before.len()
                    && self.has_table(lab, "node1")?
                    && gets_echo(lab, pod, self.outside, 7))
            })?;
            wait_for("CHECK", PATIENCE, || Ok(lab.run(&["pod", "check"]).is_ok()))?;
        }
        Ok(())
    }

    fn is_removed_with_the_pods(&self, lab: &Lab) -> Result<()> {
        lab.run(&["pod", "delete", "--all"])?;
        wait_for("the removal of routes and addresses of deleted pods", PATIENCE, || {
            let addresses = lab.on_node("node1", &["ip", "-o", self.ip, "addr"])?;
            Ok(self.routes(lab, "node1")?.is_empty() && !addresses.contains(self.range))
        })
    }

    fn is_removed_with_the_setting(&self, lab: &Lab) -> Result<()> {
        lab.run(&["daemon", "start", "node1", "--env", self.off])?;
        wait_for("the removal of the table", PATIENCE, || Ok(!self.has_table(lab, "node1")?))?;
        lab.run(&["pod", "add", "node1", "--prefix", "without-", "--count", "1"])?;
        let pod = names(lab, "node1")?.pop().context("no pod")?;
        ensure!(!gets_echo(lab, &pod, self.outside, 7), "{pod} reaches {}", self.outside);
        ensure!(self.second(lab, &pod).is_err(), "{pod} has a second address");
        lab.run(&["pod", "check"]).map(drop)
    }
}

#[test]
fn pods_of_an_ipv6_node_reach_ipv4_destinations_with_the_nodes_address() -> Result<()> {
    let name = "pods_of_an_ipv6_node_reach_ipv4_destinations_with_the_nodes_address";
    TO_IPV4.test(name, "t-egress4")
}

#[test]
fn pods_of_an_ipv4_node_reach_ipv6_destinations_with_the_nodes_address() -> Result<()> {
    let name = "pods_of_an_ipv4_node_reach_ipv6_destinations_with_the_nodes_address";
    TO_IPV6.test(name, "t-egress6")
}
