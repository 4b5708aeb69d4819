//! Load balancers of the lab, and clients outside the VPC.

use crate::Installed;
use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tests_eventually::within;

impl Installed {
    /// Lets clients outside reach all nodes. The default group allows traffic between nodes only.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn open_to_clients(&self) -> Result<()> {
        let lab = self.lab();
        lab.run(&["group", "add", "outside"])?;
        let nodes = lab.json(&["node", "list"])?;
        for node in nodes.as_array().into_iter().flatten() {
            let node = node["name"].as_str().context("a node without a name")?;
            let enis = lab.enis(node)?;
            let primary = enis.first().and_then(|eni| eni["id"].as_str());
            let primary = primary.with_context(|| format!("{node} has no ENI"))?;
            lab.run(&["eni", "groups", primary, "default", "outside"])?;
        }
        Ok(())
    }

    /// Creates a load balancer of all nodes that checks them twice a second. Returns its address.
    ///
    /// # Errors
    /// With the output of the lab's tool.
    pub fn balancer(&self, args: &[&str]) -> Result<String> {
        let add = [&["nlb", "add"], args, &["--interval", "500ms"]].concat();
        let view = self.lab().json(&add)?;
        view["address"].as_str().map(str::to_owned).context("a load balancer without an address")
    }

    /// Waits until the states of a load balancer's targets, in the order of the nodes, satisfy `is_expected`.
    ///
    /// # Errors
    /// After two minutes, with the last states.
    pub fn targets_become(&self, name: &str, is_expected: impl Fn(&[&str]) -> bool) -> Result<()> {
        within(
            &format!("the states of the targets of {name}"),
            crate::installed::PATIENCE,
            || {
                let all = self.lab().json(&["nlb", "list"])?;
                let found = all.as_array().into_iter().flatten().find(|view| view["name"] == name);
                let view = found.cloned().unwrap_or(Value::Null);
                let targets = view["targets"].as_array().into_iter().flatten();
                let states: Vec<&str> =
                    targets.filter_map(|target| target["state"].as_str()).collect();
                ensure!(is_expected(&states), "{view}");
                Ok(())
            },
        )?;
        Ok(())
    }
}
