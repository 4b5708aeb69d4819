//! A thousand random ADDs, DELs, GCs and kills of the daemon. Once all pods are deleted, the node's kernel state equals
//! the state before the first pod.
//!
//! `FERRULE_LIFE_DEEDS` is the number of actions (default 1,000). `FERRULE_LIFE_SEED` repeats the choices of a run.

#![expect(clippy::print_stdout, reason = "the seed is needed to repeat a run")]

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use std::{
    process::{Child, Stdio},
    time::Duration,
};
use tests_lab::{
    Lab,
    dice::{Dice, number, seed},
    dumps::Dumps,
    programs, wait_for,
};

const NODE: &str = "node1";
const PATIENCE: Duration = Duration::from_secs(120);
/// More than the addresses of the primary ENI, so that the daemon attaches and detaches others.
const MOST_PODS: usize = 24;

/// Numbers of actions so far.
#[derive(Debug, Default)]
struct ActionCounts {
    adds: u64,
    dels: u64,
    kills: u64,
    collections: u64,
}

impl ActionCounts {
    fn all(&self) -> u64 {
        self.adds + self.dels + self.kills + self.collections
    }
}

struct Life<'a> {
    lab: &'a Lab,
    dice: Dice,
    living: Vec<String>,
    /// Pods without network after a GC, or after a DEL without their namespace. Their own DEL follows later.
    given_up: Vec<String>,
    actions: ActionCounts,
    most_enis: usize,
}

impl Life<'_> {
    fn round(&mut self, number: u64) -> Result<()> {
        match self.dice.below(8) {
            0 => self.collect().context("GC")?,
            1 => self.delete_without_namespace().context("DEL without a namespace")?,
            _ => self.add_and_delete(number)?,
        }
        if number.is_multiple_of(16) {
            self.most_enis = self.most_enis.max(self.lab.enis(NODE)?.len());
        }
        Ok(())
    }

    /// Runs ADDs and DELs side by side, and sometimes kills the daemon among them.
    fn add_and_delete(&mut self, number: u64) -> Result<()> {
        let count = 1 + self.dice.below(8);
        let prefix = format!("p{number}-");
        let adding =
            self.start(&["pod", "add", NODE, "--prefix", &prefix, "--count", &count.to_string()])?;
        let (mut going, some) = (Vec::new(), self.dice.below(8));
        while !self.given_up.is_empty()
            || self.living.len() > MOST_PODS
            || going.len() < usize::try_from(some)?
        {
            let of = if self.given_up.is_empty() { &mut self.living } else { &mut self.given_up };
            let Some(pod) = self.dice.draw(of) else { break };
            going.push(pod);
        }
        let deleting = (!going.is_empty()).then(|| self.delete(&going)).transpose()?;
        if self.dice.below(5) == 0 {
            std::thread::sleep(Duration::from_millis(self.dice.below(80)));
            self.kill()?;
            // Calls fail to reach the daemon for a while.
            std::thread::sleep(Duration::from_millis(self.dice.below(200)));
            self.start_daemon()?;
        }
        ended(adding, "an ADD")?;
        deleting.map_or(Ok(()), |child| ended(child, "a DEL"))?;
        self.actions.adds += count;
        self.actions.dels += u64::try_from(going.len())?;
        self.living.extend((0..count).map(|of| format!("{prefix}{of}")));
        Ok(())
    }

    fn start(&self, args: &[&str]) -> Result<Child> {
        let mut command = self.lab.command(args);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    fn delete(&self, pods: &[String]) -> Result<Child> {
        let pods = pods.iter().map(String::as_str);
        self.start(&["pod", "delete"].into_iter().chain(pods).collect::<Vec<_>>())
    }

    fn kill(&mut self) -> Result<()> {
        self.lab.run(&["daemon", "kill", NODE])?;
        self.actions.kills += 1;
        Ok(())
    }

    /// Starts the daemon at once. Its supervisor would wait longer after each kill.
    fn start_daemon(&self) -> Result<()> {
        self.lab.run(&["daemon", "start", NODE]).map(drop)
    }

    /// Runs GC with a list that lacks some of the running pods.
    fn collect(&mut self) -> Result<()> {
        for _ in 0..self.dice.below(4) {
            self.given_up.extend(self.dice.draw(&mut self.living));
        }
        let valid: Vec<Value> = self
            .sandboxes(&self.living)?
            .into_iter()
            .map(|id| json!({"containerID": id, "ifname": "eth0"}))
            .collect();
        let conf = json!({
            "cniVersion": "1.1.0", "name": "aws-cni", "type": "ferrule-cni",
            "cni.dev/valid-attachments": valid,
        });
        let lab = self.lab;
        let collect = || -> Result<Option<Value>> {
            let ended = lab.plugin(NODE, &[("CNI_COMMAND", "GC")], &conf)?;
            Ok((!ended.status.success())
                .then(|| serde_json::from_slice(&ended.stdout))
                .transpose()?)
        };
        if self.dice.below(4) == 0 {
            self.kill()?;
            // Without the daemon GC is incomplete and has code 11, so the runtime calls it again.
            let error = collect()?;
            ensure!(error.as_ref().is_none_or(|error| error["code"] == 11), "{error:?}");
            self.start_daemon()?;
        }
        wait_for("GC to succeed", PATIENCE, || match collect()? {
            None => Ok(true),
            Some(error) => bail!("{error}"),
        })?;
        self.actions.collections += 1;
        Ok(())
    }

    /// Sends the DEL of a runtime for a sandbox whose namespace is gone: with its key alone, and twice.
    fn delete_without_namespace(&mut self) -> Result<()> {
        let Some(pod) = self.dice.draw(&mut self.living) else { return Ok(()) };
        let sandbox = self.sandboxes(std::slice::from_ref(&pod))?.pop().context("a sandbox")?;
        let args = format!("IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}");
        let vars = [
            ("CNI_COMMAND", "DEL"),
            ("CNI_CONTAINERID", sandbox.as_str()),
            ("CNI_NETNS", ""),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", &args),
        ];
        let conf = json!({"cniVersion": "1.0.0", "name": "aws-cni", "type": "ferrule-cni"});
        let killed = self.dice.below(3) == 0;
        if killed {
            self.kill()?;
        }
        for _ in 0..2 {
            let ended = self.lab.plugin(NODE, &vars, &conf)?;
            let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
            ensure!(ended.status.success(), "{pod}: {printed}");
            self.actions.dels += 1;
        }
        if killed {
            self.start_daemon()?;
        }
        self.given_up.push(pod);
        Ok(())
    }

    fn sandboxes(&self, pods: &[String]) -> Result<Vec<String>> {
        let known = self.lab.pods(NODE)?;
        let of = |pod: &String| {
            let found = known.iter().find(|known| known["name"] == pod.as_str());
            let id = found.and_then(|found| found["container_id"].as_str());
            id.map(str::to_owned).with_context(|| format!("{pod} has no sandbox"))
        };
        pods.iter().map(of).collect()
    }
}

fn ended(child: Child, what: &str) -> Result<()> {
    let output = child.wait_with_output()?;
    let printed = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{what} failed: {printed}");
    Ok(())
}

fn run_test(test: &str, backend: &str) -> Result<()> {
    let Some(bin) = programs(test) else { return Ok(()) };
    let actions = number("FERRULE_LIFE_DEEDS")?.unwrap_or(1_000);
    let seed = seed("FERRULE_LIFE_SEED")?;
    println!("{test}: FERRULE_LIFE_SEED={seed} FERRULE_LIFE_DEEDS={actions}");
    let lab_name = format!("t-life-{backend}");
    let backend_set = format!("FERRULE_NAT_BACKEND={backend}");
    let settings =
        ["--env", "WARM_IP_TARGET=2", "--env", "IP_COOLDOWN_PERIOD=2", "--env", &backend_set];
    let lab = Lab::up(
        &bin,
        &lab_name,
        &[&["--nodes", "1", "--type", "c5.xlarge"], &settings[..]].concat(),
    )?;
    let then = Dumps::of_whole(&lab, NODE)?;
    ensure!(then.contain("SNAT") || then.contain("snat"), "no rule translates addresses");
    let chosen = format!("backend=\"{backend}\"");
    let chosen = lab.metric(NODE, "ferrule_netfilter_backend", &[&chosen])?;
    ensure!(chosen == Some(1.0), "the daemon uses another backend than {backend}");
    run_actions(&lab, seed, actions, &then)
        .with_context(|| format!("repeat the run with FERRULE_LIFE_SEED={seed}"))?;
    lab.down()
}

fn run_actions(lab: &Lab, seed: u64, actions: u64, then: &Dumps) -> Result<()> {
    let mut life = Life {
        lab,
        dice: Dice::new(seed),
        living: Vec::new(),
        given_up: Vec::new(),
        actions: ActionCounts::default(),
        most_enis: 0,
    };
    for number in 1.. {
        life.round(number).with_context(|| format!("round {number}, after {:?}", life.actions))?;
        if life.actions.all() >= actions {
            break;
        }
    }
    println!("{:?}, up to {} ENIs", life.actions, life.most_enis);
    ensure!(life.most_enis > 1, "the daemon attached no ENI");
    if !life.given_up.is_empty() {
        ended(life.delete(&life.given_up)?, "a DEL")?;
    }
    // All other pods still have their network.
    ensure!(lab.pods(NODE)?.len() == life.living.len(), "the lab lists deleted pods");
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "0"])?;
    lab.run(&["pod", "delete", "--all"])?;
    life.kill()?;
    wait_for("the node to be in the state before the first pod", PATIENCE, || {
        match Dumps::of(lab, NODE)?.difference(then) {
            same if same.is_empty() => Ok(true),
            difference => bail!("(- before the first pod, + now)\n{difference}"),
        }
    })
}

#[test]
fn a_node_with_iptables_is_clean_after_a_thousand_actions() -> Result<()> {
    run_test("a_node_with_iptables_is_clean_after_a_thousand_actions", "iptables-nft")
}

#[test]
fn a_node_with_legacy_iptables_is_clean_after_a_thousand_actions() -> Result<()> {
    run_test("a_node_with_legacy_iptables_is_clean_after_a_thousand_actions", "iptables-legacy")
}

#[test]
fn a_node_with_nftables_is_clean_after_a_thousand_actions() -> Result<()> {
    run_test("a_node_with_nftables_is_clean_after_a_thousand_actions", "nftables")
}
