//! A pod sends with the address of another pod of its node. The packets do not leave the pod's veth.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
const ATTACKER: &str = "tenant/attacker";
const VICTIM: &str = "shop/victim";
const TARGET: &str = "shop/target";

/// The family of the pods.
struct Side {
    /// Options of the lab.
    up: &'static [&'static str],
    /// Options for the daemon.
    env: &'static [&'static str],
    /// Option of `ip`.
    ip: &'static str,
    /// Keyword of `nft`.
    nft: &'static str,
    gateway: &'static str,
}

const IPV4: Side =
    Side { up: &["--nodes", "1"], env: &[], ip: "-4", nft: "ip", gateway: "169.254.1.1" };

const IPV6: Side = Side {
    up: &["--nodes", "1", "--ipv6"],
    env: &[
        "--env",
        "ENABLE_IPv6=true",
        "--env",
        "ENABLE_IPv4=false",
        "--env",
        "ENABLE_PREFIX_DELEGATION=true",
    ],
    ip: "-6",
    nft: "ip6",
    gateway: "fe80::1",
};

fn address_of(lab: &Lab, pod: &str) -> Result<String> {
    let (namespace, name) = pod.split_once('/').context("a namespace")?;
    let pods = lab.pods("node1")?;
    let is_of_pod = |it: &&Value| it["namespace"] == namespace && it["name"] == name;
    let of_pod = pods.iter().find(is_of_pod).with_context(|| format!("{pods:?}"))?;
    Ok(of_pod["address"].as_str().context("an address")?.to_owned())
}

fn has_table(lab: &Lab) -> Result<bool> {
    let tables = lab.on_node("node1", &["nft", "list", "tables"])?;
    Ok(tables.lines().any(|line| line.trim() == "table inet ferrule-source-check"))
}

impl Side {
    /// Counts the target's packets from the attacker's own address and from the victim's.
    fn count(&self, lab: &Lab) -> Result<()> {
        let (own, spoofed) = (address_of(lab, ATTACKER)?, address_of(lab, VICTIM)?);
        let nft = self.nft;
        let rules = format!(
            "add table inet seen; flush table inet seen; \
             add chain inet seen in {{ type filter hook prerouting priority 0; }}; \
             add rule inet seen in {nft} saddr {own} udp dport 9 counter comment \"own\"; \
             add rule inet seen in {nft} saddr {spoofed} udp dport 9 counter comment \"spoofed\""
        );
        lab.run(&["exec", TARGET, "--", "nft", &rules]).map(drop)
    }

    /// True if the target has received a packet of this kind.
    fn came(lab: &Lab, kind: &str) -> Result<bool> {
        let listed = lab.run(&["exec", TARGET, "--", "nft", "list", "table", "inet", "seen"])?;
        let comment = format!("comment \"{kind}\"");
        let line = listed.lines().find(|line| line.contains(&comment));
        let line = line.with_context(|| format!("no counter for {kind}: {listed}"))?;
        Ok(!line.contains("packets 0 "))
    }

    /// Sends from the attacker with this source.
    fn send(&self, lab: &Lab, source: &str) -> Result<()> {
        let (ip, gateway, to) = (self.ip, self.gateway, address_of(lab, TARGET)?);
        let script = format!(
            "ip {ip} addr show dev eth0 | grep -qF ' {source}/' || \
             ip {ip} addr add {source} dev eth0 {}; \
             ip {ip} route replace {to} via {gateway} dev eth0 src {source}; \
             for i in 1 2 3; do echo x > /dev/udp/{to}/9; done",
            if ip == "-6" { "nodad" } else { "" }
        );
        lab.run(&["exec", ATTACKER, "--", "bash", "-c", &script]).map(drop)
    }

    fn test(&self, name: &str, lab: &str) -> Result<()> {
        let Some(bin) = programs(name) else { return Ok(()) };
        let lab = Lab::up(&bin, lab, &[self.up, self.env].concat())?;
        for pod in [ATTACKER, VICTIM, TARGET] {
            lab.run(&["pod", "add", "node1", "--pod", pod])?;
        }
        let loose = "for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $file; done";
        lab.on_node("node1", &["sh", "-c", loose])?;
        wait_for("the table", PATIENCE, || has_table(&lab))?;
        self.does_not_arrive(&lab)?;
        lab.run(&["pod", "check"])?;
        lab.on_node("node1", &["nft", "delete", "table", "inet", "ferrule-source-check"])?;
        wait_for("the repair of the table", PATIENCE, || has_table(&lab))?;
        self.does_not_arrive(&lab)?;
        let in_force = || lab.metric("node1", "ferrule_source_check_in_force", &[]);
        ensure!(in_force()? == Some(1.0), "{:?}", in_force()?);

        let off =
            [&["daemon", "start", "node1"], self.env, &["--env", "FERRULE_SOURCE_CHECK=false"]];
        lab.run(&off.concat())?;
        wait_for("the removal of the table", PATIENCE, || Ok(!has_table(&lab)?))?;
        self.count(&lab)?;
        // The same packets arrive without the check.
        wait_for("a spoofed packet", PATIENCE, || {
            self.send(&lab, &address_of(&lab, VICTIM)?)?;
            Self::came(&lab, "spoofed")
        })?;
        lab.down()
    }

    /// The packets of a pod keep their order. So the spoofed ones are lost when a later one has arrived.
    fn does_not_arrive(&self, lab: &Lab) -> Result<()> {
        self.count(lab)?;
        wait_for("a packet of the attacker", PATIENCE, || {
            self.send(lab, &address_of(lab, VICTIM)?)?;
            self.send(lab, &address_of(lab, ATTACKER)?)?;
            Self::came(lab, "own")
        })?;
        ensure!(!Self::came(lab, "spoofed")?, "a packet with the victim's address has arrived");
        Ok(())
    }
}

#[test]
fn a_pod_cannot_send_with_the_ipv4_address_of_another() -> Result<()> {
    IPV4.test("a_pod_cannot_send_with_the_ipv4_address_of_another", "t-source4")
}

#[test]
fn a_pod_cannot_send_with_the_ipv6_address_of_another() -> Result<()> {
    IPV6.test("a_pod_cannot_send_with_the_ipv6_address_of_another", "t-source6")
}
