//! The verbs that speak of the cloud itself.

use super::{
    Tool,
    cloud_args::{BranchVerb, EniVerb, GroupVerb, IamVerb, SubnetArg, SubnetVerb},
    pod_path, segment, show_cloud, split,
};
use crate::control::{
    BranchSpec, BranchView, GroupSpec, GroupView, IamView, InterfaceView, SubnetSpec, SubnetView,
};
use anyhow::Result;
use std::process::ExitCode;

impl Tool {
    pub(super) async fn subnet(&self, verb: SubnetVerb) -> Result<ExitCode> {
        if let SubnetVerb::Add { subnet } = verb {
            let SubnetArg { cidr, zone, tags } = subnet;
            let spec = SubnetSpec { cidr, zone, tags: tags.into_iter().collect() };
            let view: SubnetView = self.client.post("/subnets", &spec).await?;
            return self.print(&view, |subnet| show_cloud::subnets(std::slice::from_ref(subnet)));
        }
        let Some((subnet, order)) = verb.order() else {
            let subnets: Vec<SubnetView> = self.client.get("/subnets").await?;
            return self.print(&subnets, |subnets| show_cloud::subnets(subnets));
        };
        let path = format!("/subnets/{}", segment(&subnet));
        let view: SubnetView = self.client.post(&path, &order).await?;
        self.print(&view, |subnet| show_cloud::subnets(std::slice::from_ref(subnet)))
    }

    pub(super) async fn eni(&self, verb: EniVerb) -> Result<ExitCode> {
        let view: InterfaceView = if let EniVerb::Add(args) = &verb {
            self.client.post("/enis", &args.spec()).await?
        } else if let Some((eni, order)) = verb.order() {
            self.client.post(&format!("/enis/{}", segment(&eni)), &order).await?
        } else {
            let enis: Vec<InterfaceView> = self.client.get("/enis").await?;
            return self.print(&enis, |enis| show_cloud::enis(enis));
        };
        self.print(&view, |eni| show_cloud::enis(std::slice::from_ref(eni)))
    }

    pub(super) async fn group(&self, verb: GroupVerb) -> Result<ExitCode> {
        match verb {
            GroupVerb::List => {
                let groups: Vec<GroupView> = self.client.get("/groups").await?;
                self.print(&groups, |groups| show_cloud::groups(groups))
            }
            GroupVerb::Add { group, closed } => {
                let spec = GroupSpec { name: group, open: !closed };
                let made: GroupView = self.client.post("/groups", &spec).await?;
                self.print(&made, |made| show_cloud::groups(std::slice::from_ref(made)))
            }
        }
    }

    pub(super) async fn iam(&self, verb: IamVerb) -> Result<ExitCode> {
        let views: Vec<IamView> = match verb {
            IamVerb::List => self.client.get("/iam").await?,
            IamVerb::Deny { actions, role } => {
                self.client.post("/iam", &IamView { role, deny: actions }).await?
            }
            IamVerb::Allow { role } => {
                self.client.post("/iam", &IamView { role, deny: Vec::new() }).await?
            }
        };
        self.print(&views, |views| show_cloud::iam(views))
    }

    pub(super) async fn branch(&self, verb: BranchVerb) -> Result<ExitCode> {
        match verb {
            BranchVerb::List => {
                let branches: Vec<BranchView> = self.client.get("/branches").await?;
                self.print(&branches, |branches| show_cloud::branches(branches))
            }
            BranchVerb::Add { node, pod, groups } => {
                let (namespace, name) = split(&pod);
                let (namespace, name) = (namespace.to_owned(), name.to_owned());
                let spec = BranchSpec { node, namespace, name, groups };
                let view: BranchView = self.client.post("/branches", &spec).await?;
                self.print(&view, |branch| show_cloud::branches(std::slice::from_ref(branch)))
            }
            BranchVerb::Remove { pod } => {
                let path = pod_path(&pod)?.replacen("/pods", "/branches", 1);
                let () = self.client.delete(&path).await?;
                let text = format!("the branch of {pod} goes in a minute");
                self.print(&serde_json::json!({ "removed": pod }), |_| text)
            }
        }
    }
}
