//! Invalid settings, files and nodes. Each is reported by name with the next step, and other work continues.
//! `kubernetes/bad_input.rs` has the tests of invalid Kubernetes objects.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::time::Duration;
use tests_lab::{Lab, dumps::Dumps, programs, wait_for};
use tests_support::clock::two_years_ahead;

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn unreadable_tags_are_reported_and_enis_are_created_without_them() -> Result<()> {
    let Some(bin) = programs("unreadable_tags_are_reported_and_enis_are_created_without_them")
    else {
        return Ok(());
    };
    let tags = r#"ADDITIONAL_ENI_TAGS={"team": "secret-value""#;
    let lab = Lab::up(&bin, "t-tags", &["--nodes", "1", "--env", tags])?;
    lab.wait_for_line("node1", &["WARN", "ADDITIONAL_ENI_TAGS", "a JSON object of strings", "{}"])?;
    ensure!(!lab.logs("node1")?.contains("secret-value"), "a log shows a value that may be secret");
    lab.run(&["pod", "add", "node1", "--count", "16"])?;
    let enis = lab.json(&["eni", "list"])?;
    let enis = enis.as_array().context("no list of ENIs")?;
    let made = enis.iter().find(|eni| eni["device"].as_u64() > Some(0)).context("no second ENI")?;
    ensure!(made["tags"]["cluster.k8s.amazonaws.com/name"] == "lab", "{made}");
    ensure!(made["tags"]["team"].is_null(), "{made}");
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn an_unknown_instance_type_is_reported_and_other_nodes_serve() -> Result<()> {
    let Some(bin) = programs("an_unknown_instance_type_is_reported_and_other_nodes_serve") else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-type", &["--nodes", "1", "--imds-lag", "0s"])?;
    // The node has an ENI from other software. The number of ENIs that its type allows is unknown.
    let strange = ["node", "add", "strange", "--show-type", "z9.mystery", "--no-daemon"];
    lab.run(&[&strange[..], &["--env", "FERRULE_ADD_WAIT=3"]].concat())?;
    lab.attach_theirs("strange", &["b", "--addresses", "3"])?;
    lab.run(&["daemon", "start", "strange"])?;
    let next_step = "use an instance type that EC2 knows in this region";
    lab.wait_for_line("strange", &["ERROR", "limits_unknown", "z9.mystery", next_step])?;
    wait_for("the pool to be ready", PATIENCE, || lab.is("strange", "ready"))?;
    lab.run(&["pod", "add", "strange", "--count", "3"])?;
    let printed = lab.refused(&["pod", "add", "strange", "--pod", "one-more"])?;
    ensure!(
        printed.contains("z9.mystery") && printed.contains("code 11"),
        "the plugin printed: {printed}"
    );
    ensure!(lab.is("strange", "live")?, "the daemon is not live with an unknown type");
    for action in ["CreateNetworkInterface", "AssignPrivateIpAddresses"] {
        ensure!(lab.calls("strange", action)? == 0.0, "{action} without knowing the limits");
    }
    lab.run(&["pod", "add", "node1", "--count", "3"])?;
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

/// Keeps the daemon from attaching a second ENI at some time, which would change the compared state.
const NO_MORE_ENIS: &str = "WARM_IP_TARGET=2";

/// Returns the names and addresses of the node's pods.
fn held(lab: &Lab) -> Result<Vec<String>> {
    Ok(lab.pods("node1")?.iter().map(|pod| format!("{} {}", pod["name"], pod["address"])).collect())
}

/// Fails if the node's kernel state differs from `before`.
fn is_as_before(lab: &Lab, before: &Dumps) -> Result<()> {
    let difference = Dumps::of(lab, "node1")?.difference(before);
    ensure!(difference.is_empty(), "(- before, + now)\n{difference}");
    Ok(())
}

#[test]
fn a_truncated_checkpoint_is_reported_and_pods_keep_address_and_network() -> Result<()> {
    let Some(bin) =
        programs("a_truncated_checkpoint_is_reported_and_pods_keep_address_and_network")
    else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-cut", &["--nodes", "1", "--env", NO_MORE_ENIS])?;
    lab.run(&["pod", "add", "node1", "--count", "4"])?;
    Dumps::of_whole(&lab, "node1")?;
    for (length, damage) in [
        ("0", "does not start with the header"),
        ("9", "does not start with the header"),
        ("90", "are not a whole record"),
    ] {
        let (before, pods) = (Dumps::of(&lab, "node1")?, held(&lab)?);
        lab.run(&["daemon", "stop", "node1"])?;
        let file = "/var/lib/ferrule/ipam/checkpoint.log";
        lab.on_node("node1", &["truncate", "--size", length, file])?;
        lab.run(&["daemon", "start", "node1"])?;
        lab.wait_for_line("node1", &["checkpoint is damaged", damage])?;
        wait_for("the pool to be ready", PATIENCE, || lab.is("node1", "ready"))?;
        lab.run(&["pod", "check"])?;
        lab.run(&["check", "--tcp", "0"])?;
        ensure!(held(&lab)? == pods, "the pods changed: {pods:?}");
        is_as_before(&lab, &before).with_context(|| format!("truncated to {length} bytes"))?;
        // New pods do not get addresses of running ones: the check would reach the wrong pod.
        lab.run(&["pod", "add", "node1", "--prefix", &format!("after-{length}-"), "--count", "2"])?;
        lab.run(&["check", "--tcp", "0"])?;
    }
    lab.run(&["pod", "delete", "--all"])?;
    wait_for("the address book to be empty", PATIENCE, || {
        Ok(lab.metric("node1", "awscni_assigned_ip_addresses", &[])? == Some(0.0))
    })?;
    lab.down()
}

#[test]
fn a_truncated_checkpoint_of_amazon_vpc_cni_is_reported_and_not_changed() -> Result<()> {
    let Some(bin) =
        programs("a_truncated_checkpoint_of_amazon_vpc_cni_is_reported_and_not_changed")
    else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-cut-theirs", &["--nodes", "1", "--no-daemon"])?;
    let write = "mkdir -p /run/aws-node && \
        printf '%s' '{\"version\":\"vpc-cni-ipam/1\",\"allocations\":[{\"networkName\":\"aws-c' \
        > /run/aws-node/ipam.json && md5sum /run/aws-node/ipam.json";
    let sum = lab.on_node("node1", &["bash", "-c", write])?;
    lab.run(&["daemon", "start", "node1"])?;
    let next_step = "no pod that it may list runs on this node";
    lab.wait_for_line(
        "node1",
        &["WARN", "ipam.json", "cannot use the checkpoint", "EOF", next_step],
    )?;
    wait_for("the pool to be ready", PATIENCE, || lab.is("node1", "ready"))?;
    lab.run(&["pod", "add", "node1", "--count", "2"])?;
    lab.run(&["check", "--tcp", "2"])?;
    let now = lab.on_node("node1", &["md5sum", "/run/aws-node/ipam.json"])?;
    ensure!(now == sum, "amazon-vpc-cni's checkpoint was changed");
    lab.down()
}

#[test]
fn an_invalid_edit_of_the_conflist_fails_adds_and_changes_nothing() -> Result<()> {
    let Some(bin) = programs("an_invalid_edit_of_the_conflist_fails_adds_and_changes_nothing")
    else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-conflist", &["--nodes", "1", "--env", NO_MORE_ENIS])?;
    lab.run(&["pod", "add", "node1", "--prefix", "kept-", "--count", "2"])?;
    let file = "/etc/cni/net.d/05-ferrule.conflist";
    let good: Value = serde_json::from_str(&lab.on_node("node1", &["cat", file])?)?;
    let write = |list: &Value| {
        let script = format!("printf '%s' '{list}' > {file}");
        lab.on_node("node1", &["bash", "-c", &script])
    };
    let before = Dumps::of_whole(&lab, "node1")?;
    for (key, value, code) in [
        ("mtu", json!("jumbo"), "code 7"),
        ("mtu", json!("65536"), "code 7"),
        ("vethPrefix", json!("vlan"), "code 7"),
        ("addWait", json!("soon"), "code 7"),
        ("ipamdSocket", json!("ipamd.sock"), "code 7"),
        ("cniVersion", json!("9.9.9"), "code 1:"),
        ("name", json!("no spaces please"), "code 7"),
    ] {
        let mut bad = good.clone();
        let of_list = ["cniVersion", "name"].contains(&key);
        let place = if of_list { &mut bad } else { &mut bad["plugins"][0] };
        place[key] = value;
        write(&bad)?;
        for call in [&["pod", "add", "node1", "--pod", "new"][..], &["pod", "delete", "kept-0"]] {
            let printed = lab.refused(call)?;
            ensure!(
                printed.contains(code) && printed.contains(key),
                "{key}: {call:?} printed {printed}"
            );
        }
        is_as_before(&lab, &before).with_context(|| format!("a wrong {key}"))?;
        lab.run(&["check", "--tcp", "0"])?;
    }
    write(&good)?;
    lab.run(&["pod", "add", "node1", "--pod", "new"])?;
    lab.run(&["pod", "delete", "--all"])?;
    lab.down()
}

#[test]
fn a_node_two_years_ahead_serves_its_pods_and_keeps_their_addresses_at_a_restart() -> Result<()> {
    let test = "a_node_two_years_ahead_serves_its_pods_and_keeps_their_addresses_at_a_restart";
    let Some(bin) = programs(test) else { return Ok(()) };
    let Some(clock) = two_years_ahead(test) else { return Ok(()) };
    let clock = clock.map(|(name, value)| format!("{name}={}", value.display()));
    let lab = Lab::up(&bin, "t-ahead", &["--nodes", "2"])?;
    lab.run(&["pod", "add", "node1", "--count", "3"])?;
    // The pods of the right clock stay; a stop and a start are where times are compared.
    let before = held(&lab)?;
    let env = clock.iter().flat_map(|setting| ["--env", setting.as_str()]);
    lab.run(&["daemon", "stop", "node1"])?;
    lab.run(&[&["daemon", "start", "node1"][..], &env.collect::<Vec<_>>()].concat())?;
    wait_for("the daemon to serve", PATIENCE, || lab.is("node1", "ready"))?;
    let year = lab.on_node("node1", &["date", "+%Y"])?;
    let ahead: u32 = year.trim().parse::<u32>()? + 2;
    lab.wait_for_line("node1", &[&format!("{ahead}-")])?;
    ensure!(held(&lab)? == before, "{:?} instead of {before:?}", held(&lab)?);
    lab.run(&["pod", "add", "node1", "--prefix", "later-", "--count", "16"])?;
    lab.run(&["pod", "delete", "--all"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "last-", "--count", "16"])?;
    lab.run(&["check", "--tcp", "2"])?;
    let errors: Vec<String> =
        lab.logs("node1")?.lines().filter(|it| it.contains("ERROR")).map(str::to_owned).collect();
    ensure!(errors.is_empty(), "{errors:?}");
    lab.down()
}
