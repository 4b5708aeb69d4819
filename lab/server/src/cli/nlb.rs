//! The verbs for load balancers and for the client outside the VPC.

use super::{
    Tool, enter,
    nlb_args::{ClientVerb, NlbVerb},
    not_up, segment, show_nlb,
};
use crate::control::{BalancerOrder, BalancerView, ClientView, NodeView, PublicNode};
use anyhow::Result;
use lab_fabric::Fabric;
use std::process::ExitCode;

impl Tool {
    pub(super) async fn nlb(&self, verb: NlbVerb) -> Result<ExitCode> {
        let view: BalancerView = match verb {
            NlbVerb::List => {
                let all: Vec<BalancerView> = self.client.get("/balancers").await?;
                return self.print(&all, |all| show_nlb::balancers(all));
            }
            NlbVerb::Remove { nlb } => {
                let () = self.client.delete(&path(&nlb)).await?;
                let removed = serde_json::json!({ "removed": nlb });
                return self.print(&removed, |_| format!("{nlb} is gone"));
            }
            NlbVerb::Add(args) => self.client.post("/balancers", &args.spec()).await?,
            NlbVerb::Register { nlb, targets } => {
                self.client.post(&path(&nlb), &BalancerOrder::Register { targets }).await?
            }
            NlbVerb::Deregister { nlb, targets } => {
                self.client.post(&path(&nlb), &BalancerOrder::Deregister { targets }).await?
            }
        };
        self.print(&view, |view| show_nlb::balancers(std::slice::from_ref(view)))
    }

    pub(super) async fn outside(&self, lab: &str, verb: ClientVerb) -> Result<ExitCode> {
        match verb {
            // Not by the server: it also works when that is dead.
            ClientVerb::Exec { .. } if !self.layout.fabric().exists() => Err(not_up(lab)),
            ClientVerb::Exec { command } => enter::client(&self.layout, &command),
            ClientVerb::Show => {
                let nodes: Vec<NodeView> = self.client.get("/nodes").await?;
                let nodes = nodes
                    .into_iter()
                    .map(|node| PublicNode { node: node.name, address: node.public_address });
                let view = ClientView {
                    addresses: Fabric::open(&self.layout.fabric())?.client_addresses(),
                    further: lab_fabric::FURTHER_CLIENTS,
                    nodes: nodes.collect(),
                };
                self.print(&view, show_nlb::client)
            }
        }
    }
}

fn path(nlb: &str) -> String {
    format!("/balancers/{}", segment(nlb))
}
