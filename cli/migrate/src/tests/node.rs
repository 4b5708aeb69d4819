//! A simulated node: its observation, and the effect of each step.

use crate::{
    ASIDE, Assignment, Calls, Cluster, Eni, Ferrule, File, Kernel, LinkView, NftTable,
    OUR_CONFLIST, Observation, Observed, Plan, Policy, PolicyChoice, Program, RouteView, RuleView,
    Settings, Step, VpcCni, Wait, is_guarded, plan, vpc_cni,
};
use config_model::{
    CardIndex, DeviceIndex, Migration, Owner, PodKey, PodName, TableId, VethName, registry,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

pub(super) const CONFLIST: &str = "10-aws.conflist";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pod {
    pub(super) key: PodKey,
    pub(super) name: PodName,
    pub(super) address: IpAddr,
    pub(super) device: u16,
    pub(super) ours: bool,
}

pub(super) fn pod(number: u8, device: u16) -> Pod {
    Pod {
        key: PodKey::new("aws-cni", format!("c{number}"), "eth0").unwrap(),
        name: PodName { namespace: "default".into(), name: format!("web-{number}") },
        address: IpAddr::from([10, 0, u8::try_from(device).unwrap(), 10 + number]),
        device,
        ours: false,
    }
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) pods: Vec<Pod>,
    pub(super) files: BTreeMap<String, String>,
    pub(super) checkpoint: BTreeMap<String, Vec<u8>>,
    pub(super) results: BTreeMap<String, Vec<u8>>,
    pub(super) their_agent: bool,
    pub(super) our_daemon: bool,
    /// The reasons for which our daemon does not serve.
    pub(super) unavailable: Vec<String>,
    pub(super) settings: Settings,
    pub(super) cluster: Observed<Cluster>,
    pub(super) assignments: Option<Vec<Assignment>>,
    pub(super) tombstones: Vec<PodKey>,
    pub(super) tables: BTreeSet<NftTable>,
    pub(super) journal: Option<Migration>,
    pub(super) calls: Calls,
    /// Kernel objects besides the pods'.
    pub(super) kernel: Kernel,
    /// The user's treatment of the policy agent.
    pub(super) choice: PolicyChoice,
    /// True if amazon-vpc-cni's DaemonSet has the agent; true if the agent runs.
    pub(super) has_policy: bool,
    pub(super) policy_agent: bool,
    /// True if ferrule-ipamd calls the agent.
    pub(super) serves_policy: bool,
    /// The programs of each link and side, in the kernel's order.
    pub(super) programs: Vec<Program>,
    /// True if ferrule-agent reports its policies as in force.
    pub(super) agent_enforces: bool,
    /// True if ferrule-agent runs.
    pub(super) our_agent: bool,
    /// Its filters, TCX links and folders of pins.
    pub(super) attachments: usize,
    pub(super) pins: Vec<String>,
}

pub(super) fn program(link: &str, ingress: bool) -> Program {
    let name = if ingress { "handle_egress" } else { "handle_ingress" };
    let (link, name) = (link.to_owned(), name.to_owned());
    Program { link, ingress, name, chain: 0, priority: 1, protocol: 3, handle: 1, is_tcx: false }
}

fn is_ferrules(program: &Program) -> bool {
    ["from_pod", "to_pod"].contains(&program.name.as_str())
}

pub(super) fn their_conflist() -> Value {
    json!({
        "cniVersion": "0.4.0", "name": "aws-cni", "disableCheck": true,
        "plugins": [
            {"name": "aws-cni", "type": "aws-cni", "vethPrefix": "eni", "mtu": "9001",
             "podSGEnforcingMode": "strict", "pluginLogLevel": "DEBUG",
             "capabilities": {"io.kubernetes.cri.pod-annotations": true}},
            {"name": "egress-cni", "type": "egress-cni", "enabled": "false"},
            {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true},
        ],
    })
}

impl Node {
    /// A node of amazon-vpc-cni with a foreign file.
    pub(super) fn of_theirs(pods: Vec<Pod>) -> Self {
        let mut node = Self {
            files: [
                (CONFLIST.to_owned(), their_conflist().to_string()),
                (
                    "87-podman.conflist".to_owned(),
                    "{\"name\":\"podman\",\"plugins\":[]}".to_owned(),
                ),
            ]
            .into(),
            checkpoint: BTreeMap::new(),
            results: BTreeMap::new(),
            their_agent: true,
            our_daemon: false,
            unavailable: Vec::new(),
            settings: Settings { vpc_cni: Ok(None), ferrule: None, defaults: BTreeMap::new() },
            cluster: Err("no cluster is named".to_owned()),
            assignments: None,
            tombstones: Vec::new(),
            tables: BTreeSet::new(),
            journal: None,
            calls: Calls::default(),
            kernel: Kernel::default(),
            choice: PolicyChoice::Refuse,
            has_policy: false,
            policy_agent: false,
            serves_policy: false,
            programs: Vec::new(),
            agent_enforces: false,
            our_agent: false,
            attachments: 0,
            pins: Vec::new(),
            pods,
        };
        node.checkpoint = vpc_cni::written(&node.holding(), 1);
        for pod in node.pods.clone() {
            node.keep(&pod, json!([{"name": "x"}, {"name": "dummy1", "mac": "0", "sandbox": "0"}]));
        }
        node
    }

    /// The same with its policy agent, and with a foreign program and a foreign pin.
    pub(super) fn with_policy(pods: Vec<Pod>) -> Self {
        let mut node = Self::of_theirs(pods);
        node.has_policy = true;
        node.programs.push(Program { priority: 2, handle: 3, ..program("eni0123456789a", true) });
        node.pins.push("maps/of_somebody".to_owned());
        node.start_policy();
        node
    }

    /// Attaches and pins the agent's programs for each pod.
    fn start_policy(&mut self) {
        self.policy_agent = self.has_policy;
        if !self.policy_agent {
            return;
        }
        self.pins.push("maps/global_aws_conntrack_map".to_owned());
        for pod in &self.pods {
            let name = format!("{}_{}", pod.name.name, pod.name.namespace);
            self.pins.push(format!("programs/{name}_handle_ingress"));
            self.pins.push(format!("maps/{name}_ingress_pod_state_map"));
            for ingress in [true, false] {
                self.programs.push(program(Self::veth(pod).as_str(), ingress));
            }
        }
        self.pins.sort();
        self.pins.dedup();
        // Ferrule's programs stay first.
        self.programs.sort_by_key(|program| (!is_ferrules(program), program.clone()));
        self.programs.dedup();
    }

    /// Attaches Ferrule's programs before the others.
    pub(super) fn attach_ours(&mut self) {
        for pod in &self.pods {
            for ingress in [true, false] {
                let theirs = program(Self::veth(pod).as_str(), ingress);
                let name = if ingress { "from_pod" } else { "to_pod" }.to_owned();
                let ours = Program { name, handle: 2, ..theirs };
                if !self.programs.contains(&ours) {
                    self.programs.insert(0, ours);
                }
            }
        }
    }

    /// The checkpoint of the running pods.
    pub(super) fn holding(&self) -> Vec<Assignment> {
        let held = |pod: &Pod| Assignment {
            key: pod.key.clone(),
            pod: Some(pod.name.clone()),
            addresses: vec![(pod.address, CardIndex(0), DeviceIndex(pod.device))],
            confirmed: true,
        };
        self.pods.iter().map(held).collect()
    }

    /// Adds a pod as Ferrule's plugin and daemon do.
    pub(super) fn add_ours(&mut self, pod: Pod) {
        self.keep(&pod, json!([{"name": "eniX"}, {"name": "eth0", "mac": "02:00:00:00:00:01"}]));
        self.pods.push(Pod { ours: true, ..pod });
        self.assignments = Some(self.holding());
    }

    fn keep(&mut self, pod: &Pod, interfaces: Value) {
        let kept = json!({
            "kind": "cniCacheV1", "netns": "/run/netns/x", "cniArgs": [],
            "result": {"cniVersion": "1.0.0", "interfaces": interfaces,
                       "ips": [{"address": format!("{}/32", pod.address), "interface": 1}]},
        });
        let name = format!("aws-cni-{}-eth0", pod.key.container_id);
        self.results.insert(name, kept.to_string().into_bytes());
    }

    fn veth(pod: &Pod) -> VethName {
        VethName::of("eni", &pod.name, 0)
    }

    pub(super) fn see(&self) -> Observation {
        let mut kernel = self.kernel.clone();
        for (index, pod) in (100..).zip(&self.pods) {
            let host = Some(pod.address.into());
            kernel.links.push(LinkView {
                index,
                name: Self::veth(pod).as_str().to_owned(),
                veth: true,
                key: pod.ours.then(|| pod.key.clone()),
            });
            kernel.routes.push(RouteView { address: pod.address, dev: Some(index) });
            kernel.rules.push(RuleView {
                pref: registry::PREF_TO_POD,
                src: None,
                dst: host,
                table: TableId::MAIN,
                protocol: 3,
                text: format!("pref 512 to {}", pod.address),
            });
            if pod.device > 0 {
                kernel.rules.push(RuleView {
                    pref: registry::PREF_FROM_POD,
                    src: host,
                    dst: None,
                    table: TableId::of_eni(CardIndex(0), DeviceIndex(pod.device)),
                    protocol: 3,
                    text: format!("pref 1536 from {}", pod.address),
                });
            }
        }
        let file = |(name, bytes): (&String, &Vec<u8>)| File {
            name: name.clone(),
            bytes: Ok(bytes.clone()),
        };
        let text = |(name, text): (&String, &String)| File {
            name: name.clone(),
            bytes: Ok(text.clone().into_bytes()),
        };
        let eni = |device: u8| Eni {
            mac: format!("02:00:00:00:00:0{device}").parse().unwrap(),
            card: CardIndex(0),
            device: DeviceIndex(u16::from(device)),
            blocks: vec![format!("10.0.{device}.0/24").parse().unwrap()],
        };
        Observation {
            conflists: Ok(self.files.iter().map(text).collect()),
            vpc_cni: VpcCni {
                serves: self.their_agent,
                checkpoints: Ok(self.checkpoint.iter().map(file).collect()),
                policy: Policy {
                    socket: "npa.sock".to_owned(),
                    serves: self.policy_agent,
                    programs: Ok(self.programs.clone()),
                    folder: "globals/aws".to_owned(),
                    pins: Ok(self.pins.clone()),
                },
            },
            ferrule: Ferrule {
                runs: self.our_daemon,
                ready: self.our_daemon && self.unavailable.is_empty(),
                unavailable: self.unavailable.clone(),
                policy_agent: self.our_daemon && self.serves_policy,
                enforces: match self.agent_enforces {
                    true => Ok(()),
                    false => Err("its backend is none".to_owned()),
                },
                assignments: Ok(self.assignments.clone()),
                tombstones: Ok(self.tombstones.clone()),
                agent_runs: self.our_agent,
                attachments: Ok(self.attachments),
                tables: Ok(self.tables.iter().copied().collect()),
            },
            settings: self.settings.clone(),
            cluster: self.cluster.clone(),
            calls: Ok(self.calls),
            kernel: Ok(kernel),
            enis: Ok((0..3).map(eni).collect()),
            results: Ok(self.results.iter().map(file).collect()),
            journal: Ok(self.journal),
            unix_nanos: 7,
        }
    }

    pub(super) fn plan(&self, owner: Owner) -> Plan {
        plan(&self.see(), owner, self.choice)
    }

    /// Applies a step; for a wait the operator acts.
    pub(super) fn take(&mut self, step: &Step) {
        match step {
            Step::Note(journal) => self.journal = Some(*journal),
            Step::Await(Wait::VpcCniAgentStopped) => self.their_agent = false,
            Step::Await(Wait::PolicyAgentStopped) => self.policy_agent = false,
            Step::Await(Wait::PolicyAgentServes) => {
                assert!(self.our_daemon && self.serves_policy, "it asks when it starts");
                self.start_policy();
            }
            Step::Await(Wait::PoliciesInForce) => {
                assert!(!self.policy_agent, "it attaches its programs before ours");
                self.agent_enforces = true;
                self.attach_ours();
            }
            Step::Await(Wait::FerruleAgentStopped) => self.our_agent = false,
            Step::Await(Wait::FerruleDaemonStopped) => self.our_daemon = false,
            Step::Await(Wait::VpcCniCallsFinished) => self.calls.vpc_cni = 0,
            Step::Await(Wait::FerruleCallsFinished) => self.calls.ferrule = 0,
            Step::Await(Wait::FerruleDaemonServes) => self.start_ours(),
            Step::Await(Wait::VpcCniAgentServes) => self.start_theirs(),
            Step::WriteConflist(network) => {
                let first = json!({"type": "ferrule-cni", "vethPrefix": network.veth_prefix});
                let plugins = [&[first], network.chained.as_slice()].concat();
                let list = json!({"name": "aws-cni", "cniVersion": "0.4.0", "plugins": plugins});
                self.files.insert(OUR_CONFLIST.to_owned(), list.to_string());
            }
            Step::PutAside { name } => {
                let text = self.files.remove(name).unwrap();
                self.files.insert(format!("{name}{ASIDE}"), text);
            }
            Step::Restore { name } => {
                let text = self.files.remove(&format!("{name}{ASIDE}")).unwrap();
                self.files.insert(name.clone(), text);
            }
            Step::RemoveConflist { name } => {
                assert!(self.files.remove(name).is_some(), "{name} is not there");
            }
            Step::AddTombstone { key } => {
                assert!(!self.pods.iter().any(|pod| pod.key == *key), "{key} lives");
                self.tombstones.push(key.clone());
            }
            Step::WriteCheckpoint { name, bytes } => {
                assert!(!self.their_agent, "the agent has the file");
                self.checkpoint.insert(name.clone(), bytes.clone());
            }
            Step::WriteResult { name, bytes } => {
                self.results.insert(name.clone(), bytes.clone());
            }
            Step::DropTwin { rule } => {
                assert!(self.their_agent, "the agent makes its own when it starts");
                let rules = &mut self.kernel.rules;
                rules.retain(|seen| seen.text != *rule || seen.protocol != 70);
                assert!(rules.iter().any(|seen| seen.text == *rule), "nothing is left of {rule}");
            }
            Step::RemoveTable { table } => {
                assert!(self.their_agent, "SNAT is not in force");
                assert!(self.tables.remove(table), "{table} does not exist");
            }
            Step::Retire => {
                assert!(!self.our_agent, "it attaches them again");
                assert!(self.their_agent, "the rollback may not come about");
                assert_eq!(self.choice, PolicyChoice::Drop);
                self.programs.retain(|program| !is_ferrules(program));
                self.attachments = 0;
            }
            Step::Detach { programs, enforced } => {
                let all = &self.programs;
                let is_open = programs.iter().any(|program| !is_guarded(program, all));
                assert!(
                    !enforced || self.agent_enforces && !is_open,
                    "neither of the two enforces"
                );
                assert!(!self.policy_agent, "it attaches them again");
                assert!(self.plugin() == "ferrule-cni", "the takeover may not come about");
                let before = self.programs.len();
                self.programs.retain(|program| !programs.contains(program));
                assert_eq!(self.programs.len() + programs.len(), before);
            }
            Step::Unpin { names } => {
                assert!(!self.programs.iter().any(|it| it.handle == 1), "they are at work");
                self.pins.retain(|pin| !names.contains(pin));
            }
            Step::DropFerruleCheckpoint => {
                assert!(!self.our_daemon, "the daemon has the folder");
                (self.assignments, self.tombstones) = (None, Vec::new());
            }
        }
    }

    /// Imports amazon-vpc-cni's checkpoint and the kernel's state.
    pub(super) fn start_ours(&mut self) {
        assert!(!self.their_agent, "two daemons own the pool");
        assert_eq!(self.calls.vpc_cni, 0, "an ADD of aws-cni is in progress");
        assert_eq!(self.journal.map(|journal| journal.owner), Some(Owner::Ferrule));
        self.our_daemon = true;
        self.tables = NftTable::ALL.into();
        if self.assignments.is_none() {
            self.assignments = Some(self.holding());
        }
    }

    /// Asserts that the agent's checkpoint lists exactly the running pods.
    pub(super) fn start_theirs(&mut self) {
        assert!(!self.our_daemon, "two daemons own the pool");
        let wanted = vpc_cni::written(&self.holding(), 0);
        for (name, bytes) in &wanted {
            let there = &self.checkpoint[name];
            assert!(vpc_cni::same_allocations(there, bytes), "{name}: a pod is not handed over");
        }
        self.their_agent = true;
        self.start_policy();
    }

    pub(super) fn plugin(&self) -> String {
        let first = self.files.iter().find(|(name, _)| name.ends_with(".conflist"));
        let list: Value = serde_json::from_str(first.unwrap().1).unwrap();
        list["plugins"][0]["type"].as_str().unwrap_or_default().to_owned()
    }

    pub(super) fn is_ours(&self) -> bool {
        self.files.contains_key(OUR_CONFLIST) && self.our_daemon && !self.their_agent
    }
}
