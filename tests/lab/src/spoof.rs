//! A pod sends with the address of another pod of its node. The packets do not leave the pod's veth.

use crate::{Lab, wait_for};
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::time::Duration;

/// The pods of the test.
pub const ATTACKER: &str = "tenant/attacker";
pub const VICTIM: &str = "shop/victim";
pub const TARGET: &str = "shop/target";

const PATIENCE: Duration = Duration::from_secs(60);

/// Packets of the attacker on one node.
#[derive(Clone, Copy)]
pub struct Spoof<'a> {
    pub lab: &'a Lab,
    pub node: &'a str,
    /// Settings of the daemon, as options `--env`.
    pub env: &'a [&'a str],
    /// IPv6 instead of IPv4.
    pub v6: bool,
    /// The attacker's interface.
    pub dev: &'a str,
    /// The gateway of that interface.
    pub gateway: &'a str,
}

impl<'a> Spoof<'a> {
    /// Returns packets by the first interface of an IPv4 pod.
    pub fn v4(lab: &'a Lab, node: &'a str, env: &'a [&'a str]) -> Self {
        Self { lab, node, env, v6: false, dev: "eth0", gateway: "169.254.1.1" }
    }

    /// Adds the three pods.
    ///
    /// # Errors
    /// If an ADD fails.
    pub fn add_pods(&self) -> Result<()> {
        for pod in [ATTACKER, VICTIM, TARGET] {
            self.lab.run(&["pod", "add", self.node, "--pod", pod])?;
        }
        Ok(())
    }

    /// Runs CHECK for all pods while the table exists.
    ///
    /// # Errors
    /// If CHECK fails for a pod.
    pub fn check_pods(&self) -> Result<()> {
        wait_for("the table", PATIENCE, || self.has_table())?;
        self.lab.run(&["pod", "check"]).map(drop)
    }

    /// Tests the check, its repair and, as the proof that the packets can arrive, the packets without the check.
    ///
    /// # Errors
    /// If a packet with the victim's address arrives, or none arrives without the check.
    pub fn test(&self) -> Result<()> {
        let (lab, node) = (self.lab, self.node);
        let loose = "for file in /proc/sys/net/ipv4/conf/*/rp_filter; do echo 0 > $file; done";
        lab.on_node(node, &["sh", "-c", loose])?;
        wait_for("the table", PATIENCE, || self.has_table())?;
        self.does_not_arrive()?;
        lab.on_node(node, &["nft", "delete", "table", "inet", "ferrule-source-check"])?;
        wait_for("the repair of the table", PATIENCE, || self.has_table())?;
        self.does_not_arrive()?;
        let in_force = || lab.metric(node, "ferrule_source_check_in_force", &[]);
        ensure!(in_force()? == Some(1.0), "{:?}", in_force()?);

        let off = [&["daemon", "start", node], self.env, &["--env", "FERRULE_SOURCE_CHECK=false"]];
        lab.run(&off.concat())?;
        wait_for("the removal of the table", PATIENCE, || Ok(!self.has_table()?))?;
        self.count()?;
        // The same packets arrive without the check.
        wait_for("a spoofed packet", PATIENCE, || {
            self.send(&self.address_of(VICTIM)?)?;
            self.came("spoofed")
        })
    }

    /// The packets of a pod keep their order. So the spoofed ones are lost when a later one has arrived.
    fn does_not_arrive(&self) -> Result<()> {
        self.count()?;
        wait_for("a packet of the attacker", PATIENCE, || {
            self.send(&self.address_of(VICTIM)?)?;
            self.send(&self.own()?)?;
            self.came("own")
        })?;
        ensure!(!self.came("spoofed")?, "a packet with the victim's address has arrived");
        Ok(())
    }

    fn address_of(&self, pod: &str) -> Result<String> {
        let (namespace, name) = pod.split_once('/').context("a namespace")?;
        let pods = self.lab.pods(self.node)?;
        let is_of_pod = |it: &&Value| it["namespace"] == namespace && it["name"] == name;
        let of_pod = pods.iter().find(is_of_pod).with_context(|| format!("{pods:?}"))?;
        let address = of_pod["address"].as_str().context("an address")?;
        // An address of amazon-vpc-cni has a prefix length.
        Ok(address.split_once('/').map_or(address, |(address, _)| address).to_owned())
    }

    /// Returns the attacker's own address on its interface.
    fn own(&self) -> Result<String> {
        if self.dev == "eth0" {
            return self.address_of(ATTACKER);
        }
        let show = ["ip", self.ip(), "-json", "addr", "show", "dev", self.dev];
        let shown = self.lab.run(&[&["exec", ATTACKER, "--"], &show[..]].concat())?;
        let links: Value = serde_json::from_str(&shown)?;
        // The plugin's address is the first one.
        let first = links[0]["addr_info"][0]["local"].as_str();
        Ok(first.with_context(|| format!("no address: {shown}"))?.to_owned())
    }

    fn has_table(&self) -> Result<bool> {
        let tables = self.lab.on_node(self.node, &["nft", "list", "tables"])?;
        Ok(tables.lines().any(|line| line.trim() == "table inet ferrule-source-check"))
    }

    /// Counts the target's packets from the attacker's own address and from the victim's.
    fn count(&self) -> Result<()> {
        let (own, spoofed) = (self.own()?, self.address_of(VICTIM)?);
        let nft = if self.v6 { "ip6" } else { "ip" };
        let rules = format!(
            "add table inet seen; flush table inet seen; \
             add chain inet seen in {{ type filter hook prerouting priority 0; }}; \
             add rule inet seen in {nft} saddr {own} udp dport 9 counter comment \"own\"; \
             add rule inet seen in {nft} saddr {spoofed} udp dport 9 counter comment \"spoofed\""
        );
        self.lab.run(&["exec", TARGET, "--", "nft", &rules]).map(drop)
    }

    /// True if the target has received a packet of this kind.
    fn came(&self, kind: &str) -> Result<bool> {
        let listed =
            self.lab.run(&["exec", TARGET, "--", "nft", "list", "table", "inet", "seen"])?;
        let comment = format!("comment \"{kind}\"");
        let line = listed.lines().find(|line| line.contains(&comment));
        let line = line.with_context(|| format!("no counter for {kind}: {listed}"))?;
        Ok(!line.contains("packets 0 "))
    }

    /// Sends from the attacker with this source.
    fn send(&self, source: &str) -> Result<()> {
        let (ip, dev, gateway, to) = (self.ip(), self.dev, self.gateway, self.address_of(TARGET)?);
        let script = format!(
            "ip {ip} addr show dev {dev} | grep -qF ' {source}/' || \
             ip {ip} addr add {source} dev {dev} {}; \
             ip {ip} route replace {to} via {gateway} dev {dev} src {source} {}; \
             for i in 1 2 3; do echo x > /dev/udp/{to}/9; done",
            if self.v6 { "nodad" } else { "" },
            // The table of a further interface has the route to its gateway.
            if dev == "eth0" { "" } else { "onlink" }
        );
        self.lab.run(&["exec", ATTACKER, "--", "bash", "-c", &script]).map(drop)
    }

    fn ip(&self) -> &'static str {
        if self.v6 { "-6" } else { "-4" }
    }
}
