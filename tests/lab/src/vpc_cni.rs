//! The real amazon-vpc-cni, for `ferrule-lab node add --cni amazon-vpc-cni --cni-dir <folder>`.

use crate::{Lab, wait_for};
use anyhow::{Context as _, Result, ensure};
use std::time::Duration;

/// Waits until a node can start pods: amazon-vpc-cni's conflist appears after its agent serves.
///
/// # Errors
/// After two minutes.
pub fn wait_until_ready(lab: &Lab, node: &str) -> Result<()> {
    wait_for(&format!("amazon-vpc-cni on {node}"), PATIENCE, || {
        lab.on_node(node, &["cat", CONFLIST]).map(|_| true)
    })
}

/// Waits until `count` addresses are free. An ADD of amazon-vpc-cni fails instead of waiting for an address.
///
/// # Errors
/// After two minutes.
pub fn wait_for_free(lab: &Lab, node: &str, count: u32) -> Result<()> {
    wait_for(&format!("{count} free addresses of amazon-vpc-cni on {node}"), PATIENCE, || {
        let metric = |name: &str| lab.metric(node, name, &[]);
        let total = metric("awscni_total_ip_addresses")?.context("no metric of the total")?;
        let assigned = metric("awscni_assigned_ip_addresses")?.unwrap_or_default();
        ensure!(total - assigned >= f64::from(count), "{assigned} of {total} are assigned");
        Ok(true)
    })
}

const CONFLIST: &str = "/etc/cni/net.d/10-aws.conflist";
const PATIENCE: Duration = Duration::from_secs(120);
