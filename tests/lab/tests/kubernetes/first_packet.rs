//! Pods with network policy: the answers to ADDs while the controller is healthy, slow, absent or restarted. All
//! programs are the production ones.

use crate::{
    policed::{
        Agent, AgentSite, Controllers,
        gate::{Gate, Pace},
        model::{Model, entry},
        sandbox::{Answer, Sandbox, Started, once, until_all_start},
    },
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result, ensure};
use datapath_node::store::Replayed;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, net::Ipv4Addr, ops::Range, path::Path, time::Duration};
use tests_lab::{Lab, programs, wait_for};

const NODE: &str = "node1";
/// The number of pods in each phase.
const SHARE: usize = 50;
/// The delay of each chunk from a slow controller. The agent still follows it, also over a new connection.
const SLOW: Duration = Duration::from_millis(700);
/// The code of an ADD that the runtime repeats.
const AGAIN: i64 = 11;

/// A node with network policy, and its cluster.
struct Scenario {
    world: World,
    lab: Lab,
    site: AgentSite,
    controllers: Controllers,
    gate: Gate,
}

impl Scenario {
    /// Starts the cluster and the node. A first replica publishes the certificate authority and is stopped.
    fn new(bin: &Path, name: &str, mode: &str) -> Result<Self> {
        let world = World::new()?;
        world.make_node(NODE, &json!({}))?;
        for policy in policies() {
            world.apply(&policy)?;
        }
        let mode = format!("NETWORK_POLICY_ENFORCING_MODE={mode}");
        let lab = world.lab(
            bin,
            name,
            &[
                &["--nodes", "1", "--type", "m5.4xlarge", "--env", "FERRULE_POLICY=true"],
                &["--env", &mode, "--env", "ENABLE_PREFIX_DELEGATION=true"][..],
            ]
            .concat(),
        )?;
        let controllers = Controllers::new(&world, bin)?;
        let gate = Gate::open(&lab, NODE, Ipv4Addr::LOCALHOST)?;
        let replica = controllers.start()?;
        let site = AgentSite::new(&world, bin, NODE)?;
        drop(replica);
        Ok(Self { world, lab, site, controllers, gate })
    }

    fn agent(&self) -> Result<Agent> {
        self.site.start(&self.lab, &["--replica", &self.gate.at.to_string()])
    }

    /// Creates pods with these numbers, bound to the node.
    fn pods(&self, numbers: Range<usize>) -> Result<Vec<Started>> {
        numbers.map(|number| self.pod(&format!("pod-{number}"), app(number))).collect()
    }

    fn pod(&self, name: &str, app: &str) -> Result<Started> {
        let pod: Pod = serde_json::from_value(json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
            "spec": {
                "nodeName": NODE, "automountServiceAccountToken": false,
                "containers": [{"name": "c", "image": "none.invalid/none"}],
            },
        }))?;
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), "default");
        let made = self.world.runtime.block_on(pods.create(&PostParams::default(), &pod))?;
        Ok(Started { name: name.to_owned(), uid: made.uid().context("a pod without UID")? })
    }

    /// Replaces a pod by another of the same name, as a StatefulSet does.
    fn replaced(&self, name: &str, app: &str) -> Result<Started> {
        let pods: Api<Pod> = Api::namespaced(self.world.client.clone(), "default");
        let now = DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() };
        self.world.runtime.block_on(pods.delete(name, &now))?;
        self.pod(name, app)
    }

    fn model(&self) -> Result<Model> {
        Model::read(&self.world.runtime, self.world.cluster.kubeconfig())
    }

    /// Sends ADDs until all pods run. The node has the entry and all policies of each.
    fn start(&self, pods: &[Started]) -> Result<()> {
        let model = self.model()?;
        for (pod, answers) in pods.iter().zip(until_all_start(&self.lab, NODE, pods, PATIENCE)?) {
            let (_, failed) = answers.split_last().context("no answer")?;
            for answer in failed {
                ensure_again(pod, answer)?;
            }
            self.wait_for_entry(&model, pod)?;
        }
        Ok(())
    }

    /// Waits for the pod's entry on the disk, which the agent writes a moment later.
    fn wait_for_entry(&self, model: &Model, pod: &Started) -> Result<()> {
        wait_for(&format!("the entry of {}", pod.name), PATIENCE, || {
            ensure_entry(&self.site.kept()?, model, pod).map(|()| true)
        })
    }

    /// Sends one ADD for each pod. All fail, because the node cannot have the pods' entries.
    fn ensure_none_starts(&self, pods: &[Started]) -> Result<()> {
        for (pod, answer) in pods.iter().zip(once(&self.lab, NODE, pods)?) {
            ensure_again(pod, &answer)?;
        }
        Ok(())
    }
}

/// Fails if the node's policies of a pod differ from the policies of the model.
fn ensure_entry(kept: &Replayed, model: &Model, pod: &Started) -> Result<()> {
    let (held, meant) = (entry(kept, &pod.uid), model.policies_of(&pod.name));
    ensure!(held.as_ref() == Some(&meant), "{pod:?}: {held:?} instead of {meant:?}");
    Ok(())
}

fn ensure_again(pod: &Started, answer: &Answer) -> Result<()> {
    let Answer::Fails(code, message) = answer else {
        anyhow::bail!("{pod:?} starts without its entry: {answer:?}")
    };
    ensure!(*code == AGAIN && message.contains(&pod.name), "{pod:?}: {answer:?}");
    Ok(())
}

/// Returns the label of a pod. Two of three pods are isolated; the controller sends entries for all three.
fn app(number: usize) -> &'static str {
    ["web", "db", "free"][number % 3]
}

fn policies() -> Vec<Value> {
    let policy = |name: &str, selector: Value, rules: Value| {
        let mut spec = json!({ "podSelector": selector });
        spec.as_object_mut().expect("an object").extend(rules.as_object().expect("one").clone());
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": name, "namespace": "default"}, "spec": spec,
        })
    };
    let of = |app: &str| json!({"matchLabels": {"app": app}});
    let both = json!({"matchExpressions": [
        {"key": "app", "operator": "In", "values": ["web", "db"]},
    ]});
    vec![
        policy("web-in", of("web"), json!({"ingress": [{"from": [{"podSelector": of("free")}]}]})),
        policy("db-in", of("db"), json!({"ingress": [{"from": [{"podSelector": of("web")}]}]})),
        policy("no-out", both, json!({"policyTypes": ["Egress"]})),
    ]
}

fn share(which: usize) -> Range<usize> {
    which * SHARE..(which + 1) * SHARE
}

#[test]
fn a_pod_waits_for_its_policies_from_a_slow_absent_or_restarted_controller() -> Result<()> {
    let name = "a_pod_waits_for_its_policies_from_a_slow_absent_or_restarted_controller";
    let Some(bin) = programs(name) else { return Ok(()) };
    let scene = Scenario::new(&bin, "t-first", "strict")?;

    // Healthy: pods start as soon as they are bound.
    let replica = scene.controllers.start()?;
    scene.gate.lead_to(Some(replica.at));
    let agent = scene.agent()?;
    let usual = scene.pods(share(0))?;
    scene.start(&usual)?;
    let model = scene.model()?;
    let policies: BTreeSet<usize> =
        usual.iter().map(|pod| model.policies_of(&pod.name).len()).collect();
    ensure!(policies == BTreeSet::from([0, 2]), "{policies:?}");

    // Slow: the agent receives nothing while pods start, and delayed chunks afterwards.
    scene.gate.pace(Pace::Held);
    let slow = scene.pods(share(1))?;
    scene.ensure_none_starts(&slow)?;
    scene.gate.pace(Pace::Slow(SLOW));
    scene.start(&slow)?;
    scene.gate.pace(Pace::Free);

    // Absent: the agent starts with the state on its disk.
    scene.gate.lead_to(None);
    drop(replica);
    drop(agent);
    let kept = scene.site.kept()?;
    let known = usual.iter().chain(&slow).filter(|pod| entry(&kept, &pod.uid).is_some()).count();
    ensure!(known == usual.len() + slow.len(), "{known} pods are on the disk");
    scene.ensure_none_starts(&usual[..3])?;
    let agent = scene.agent()?;
    let gone = scene.pods(share(2))?;
    scene.ensure_none_starts(&gone)?;
    let model = scene.model()?;
    for pod in &usual[..6] {
        let sandbox = Sandbox::new(&scene.lab, NODE, pod)?;
        let Answer::Starts(result) = sandbox.add()? else {
            anyhow::bail!("{pod:?} does not start although its node has its entry")
        };
        ensure_entry(&scene.site.kept()?, &model, pod)?;
        sandbox.del(&result)?;
    }
    // A new pod with the name of a known one. The new pod is isolated, the old one was not.
    let old = &usual[2];
    let new = scene.replaced(&old.name, "web")?;
    let answer = Sandbox::new(&scene.lab, NODE, &new)?.add()?;
    ensure_again(&new, &answer)?;
    let Answer::Fails(_, printed) = &answer else { unreachable!("the ADD fails") };
    ensure!(printed.contains(&format!("knows UID {} under this name", old.uid)), "{printed}");
    let replica = scene.controllers.start()?;
    scene.gate.lead_to(Some(replica.at));
    scene.start(&gone)?;
    scene.start(std::slice::from_ref(&new))?;

    // Restarted, while pods start.
    let restarted = scene.pods(share(3))?;
    std::thread::scope(|scope| -> Result<()> {
        let starting = scope.spawn(|| scene.start(&restarted));
        scene.gate.lead_to(None);
        drop(replica);
        let replica = scene.controllers.start()?;
        scene.gate.lead_to(Some(replica.at));
        let started = starting.join().ok().context("the thread panicked")?;
        started?;
        wait_for_all_objects(&scene)
    })?;
    let metrics = scene.site.metrics()?;
    ensure!(metrics.contains("ferrule_agent_admitted_total{answer=\"open\"} 0"), "{metrics}");
    drop(agent);
    scene.lab.down()
}

/// Waits until the node has all objects that a new model of the cluster has for it.
fn wait_for_all_objects(scene: &Scenario) -> Result<()> {
    let mut model = scene.model()?;
    wait_for("the node to have all its objects", PATIENCE, || {
        let lacks = model.lacks(NODE, &scene.site.kept()?.held);
        ensure!(lacks == 0, "the node lacks {lacks} objects");
        Ok(true)
    })
}

#[test]
fn standard_mode_starts_pods_open_without_a_controller_and_logs_each() -> Result<()> {
    let name = "standard_mode_starts_pods_open_without_a_controller_and_logs_each";
    const PODS: usize = 12;
    let Some(bin) = programs(name) else { return Ok(()) };
    let scene = Scenario::new(&bin, "t-open", "standard")?;
    let agent = scene.agent()?;
    let pods = scene.pods(0..PODS)?;
    for (pod, answer) in pods.iter().zip(once(&scene.lab, NODE, &pods)?) {
        ensure!(matches!(answer, Answer::Starts(_)), "{pod:?}: {answer:?}");
        let why = "no replica of the controller is followed";
        scene.lab.wait_for_line(NODE, &[&pod.name, "starts without its policies", why])?;
        let log = scene.site.log();
        let is_logged = log.lines().any(|it| it.contains("starts open") && it.contains(&pod.uid));
        ensure!(is_logged, "the agent does not log {pod:?}: {log}");
    }
    let metrics = scene.site.metrics()?;
    let open = format!("ferrule_agent_admitted_total{{answer=\"open\"}} {PODS}");
    ensure!(metrics.contains(&open), "{metrics}");
    // Pods also start open without the agent.
    drop(agent);
    let more = scene.pods(PODS..PODS + 1)?;
    let answers = once(&scene.lab, NODE, &more)?;
    ensure!(matches!(answers.as_slice(), [Answer::Starts(_)]), "{answers:?}");
    let why = "cannot connect to ferrule-agent";
    scene.lab.wait_for_line(NODE, &[&more[0].name, "starts without its policies", why])?;
    // Later pods have their policies in force once a controller runs.
    let replica = scene.controllers.start()?;
    scene.gate.lead_to(Some(replica.at));
    let agent = scene.agent()?;
    scene.site.until(&agent, "the entries of all pods", |status| status.pods > PODS as u64)?;
    let pod = scene.pods(PODS + 1..PODS + 2)?;
    scene.site.until(&agent, "the entry of the new pod", |status| status.pods > PODS as u64 + 1)?;
    let answers = once(&scene.lab, NODE, &pod)?;
    ensure!(matches!(answers.as_slice(), [Answer::Starts(_)]), "{answers:?}");
    let metrics = scene.site.metrics()?;
    ensure!(metrics.contains("ferrule_agent_admitted_total{answer=\"enforced\"} 1"), "{metrics}");
    scene.lab.down()
}
