//! One validated call: the interface, the pod and the settings.

use crate::{
    fault::{Code, Fault},
    invocation::Attachment,
    netconf::NetConf,
    session::Daemon,
};
use config_model::{PodKey, PodName, RuleLayout, TableId, VethName, registry};
use datapath_rpc::AgentPod;
use ipamd_rpc::{Branch, Enforcing, TraceParent};
use routing_plan::pod::{HostEnd, PodNet};
use serde_json::Value;
use std::net::IpAddr;

/// A call of ADD, DEL or CHECK.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) key: PodKey,
    pub(crate) attachment: Attachment,
    pub(crate) conf: NetConf,
    pub(crate) daemon: Daemon,
}

/// The output of a verb that succeeded.
#[derive(Clone, Debug, Default)]
pub(crate) struct Served {
    /// For the runtime.
    pub(crate) stdout: Vec<u8>,
    /// For the log.
    pub(crate) fields: Vec<(&'static str, Value)>,
}

impl Call {
    /// Builds the key from the variables and the configuration.
    pub(crate) fn new(
        attachment: Attachment,
        conf: NetConf,
        trace: Option<TraceParent>,
    ) -> Result<Self, Fault> {
        let Attachment { container_id, ifname, .. } = &attachment;
        let key = PodKey::new(&conf.network, container_id, ifname).map_err(|invalid| {
            // The message names the field, not its value, which may be anything.
            let (code, place) = match invalid.field {
                "network name" => (Code::InvalidConfig, "name in the network configuration"),
                "interface name" => (Code::InvalidEnvironment, "CNI_IFNAME"),
                _ => (Code::InvalidEnvironment, "CNI_CONTAINERID"),
            };
            Fault::new(code, format!("{place} is not valid"), invalid.rule)
        })?;
        let daemon = Daemon { socket: conf.socket.clone(), trace };
        Ok(Self { key, attachment, conf, daemon })
    }

    /// The pod's name for messages; the sandbox if the name is unknown.
    pub(crate) fn pod_text(&self) -> String {
        match &self.attachment.pod.pod {
            Some(pod) => pod.to_string(),
            None => format!("sandbox {}", self.key.container_id),
        }
    }

    /// The possible names of the pod's host veth; the second is for a strict branch pod. `None` if the pod's name is not
    /// known.
    pub(crate) fn veths(&self) -> Option<[VethName; 2]> {
        let pod = self.attachment.pod.pod.as_ref()?;
        let prefixes = [self.conf.veth_prefix.as_str(), registry::STRICT_VETH_PREFIX];
        Some(prefixes.map(|prefix| VethName::of(prefix, pod, 0)))
    }

    /// The pod's interfaces to build, in the order of its addresses.
    ///
    /// `None` if the pod's name is not known.
    pub(crate) fn plumbing(
        &self,
        addresses: &[(IpAddr, TableId)],
        layout: RuleLayout,
        host_end: &HostEnd,
    ) -> Option<Vec<PodNet>> {
        let pod = self.attachment.pod.pod.as_ref()?;
        let net = |(number, &(address, table))| PodNet {
            key: self.key.interface(number),
            veth: VethName::of(&self.conf.veth_prefix, pod, number),
            number,
            address,
            table,
            layout,
            host_end: host_end.clone(),
            mtu: self.conf.mtu,
            branch: None,
        };
        Some((0..=u8::MAX).zip(addresses).map(net).collect())
    }

    /// The one interface of a pod with this branch ENI.
    ///
    /// `None` if the pod's name is not known.
    pub(crate) fn branch_plumbing(&self, branch: &Branch) -> Option<PodNet> {
        let [standard, strict] = self.veths()?;
        let &Branch { vlan, mac, address, gateway, .. } = branch;
        let (enforcing, veth) = match branch.enforcing {
            Enforcing::Strict => (routing_plan::Enforcing::Strict, strict),
            Enforcing::Standard => (routing_plan::Enforcing::Standard, standard),
        };
        let branch = routing_plan::Branch { vlan, mac, gateway, enforcing };
        Some(PodNet {
            key: self.key.clone(),
            veth,
            number: 0,
            address,
            table: branch.table(),
            layout: RuleLayout::PerPod,
            host_end: HostEnd::Routed,
            mtu: self.conf.mtu,
            branch: Some(branch),
        })
    }

    pub(crate) fn agent_pod(&self, name: &PodName) -> AgentPod {
        AgentPod {
            uid: self.attachment.pod.uid.clone(),
            name: name.clone(),
            container: self.key.container_id.clone(),
        }
    }

    pub(crate) fn pod(&self) -> Option<ipamd_rpc::Pod> {
        let args = &self.attachment.pod;
        let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Some(ipamd_rpc::Pod {
            name: args.pod.clone()?,
            uid: given(&args.uid),
            infra_container_id: given(&args.infra_container_id),
        })
    }
}
