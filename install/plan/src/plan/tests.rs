#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::conflist::tests::conflist;
use proptest::{collection::btree_map, prelude::*, sample::select};

const AWS: &str = r#"{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"}]}"#;
const MULTUS: &str = r#"{"cniVersion":"0.3.1","name":"multus","type":"multus-shim"}"#;
const BRIDGE: &str = r#"{"cniVersion":"1.0.0","name":"net","plugins":[{"type":"bridge"}]}"#;

fn node(confs: &[(&str, &str)]) -> Observed {
    let own = |&(name, text): &(&str, &str)| (name.to_owned(), text.as_bytes().to_vec());
    let programs = [PLUGIN, "portmap"].map(|name| (name.to_owned(), FileState::Other));
    Observed {
        programs: programs.into(),
        confs: confs.iter().map(own).collect(),
        ..Observed::default()
    }
}

/// The conflist that the installer writes on such a node.
fn text(conflist: &Conflist, cni_version: &str) -> String {
    {
        let chain = conflist.chain(true);
        conflist.text_with(cni_version, &chain, &common_versions(&chain, &BTreeMap::new()))
    }
}

/// A disk that applies every operation.
fn apply(op: &Op, on: &mut Observed) {
    match op {
        Op::Install { name } => drop(on.programs.insert(name.clone(), FileState::AsDesired)),
        Op::InstallMissing { name } => {
            let there = on.programs.insert(name.clone(), FileState::Other);
            assert_eq!(there, None, "somebody has brought {name}");
        }
        Op::Write { name, bytes } => drop(on.confs.insert(name.clone(), bytes.clone())),
        Op::Rename { from, to } => {
            let bytes = on.confs.remove(from).expect("what is renamed is there");
            on.confs.insert(to.clone(), bytes);
        }
        Op::Remove { place: FolderKind::Programs, name } => drop(on.programs.remove(name)),
        Op::Remove { place: FolderKind::Networks, name } => drop(on.confs.remove(name)),
    }
}

fn done(plan: &Plan, on: &Observed) -> Observed {
    let mut after = on.clone();
    plan.ops.iter().for_each(|op| apply(op, &mut after));
    after
}

fn networks(seen: &Observed) -> Vec<&str> {
    seen.confs.keys().map(String::as_str).filter(|name| is_read(name)).collect()
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.ops.iter().map(ToString::to_string).collect()
}

#[test]
fn our_conflist_is_written_before_others_are_set_aside() {
    let seen = node(&[
        ("00-bad.conflist", "{"),
        ("04-cilium.conf", BRIDGE),
        ("10-aws.conflist", AWS),
        ("87-podman.conflist", BRIDGE),
        ("README", "text"),
    ]);
    let plan = network(&conflist(), &seen).unwrap();
    assert_eq!(
        steps(&plan),
        [
            "write 05-ferrule.conflist",
            "put 00-bad.conflist aside as 00-bad.conflist.ferrule-aside",
            "put 04-cilium.conf aside as 04-cilium.conf.ferrule-aside",
            "put 10-aws.conflist aside as 10-aws.conflist.ferrule-aside",
        ]
    );
    let after = done(&plan, &seen);
    assert_eq!(networks(&after), [CONFLIST, "87-podman.conflist"]);
    assert_eq!(done(&remove(&[], true, &after).unwrap(), &after), seen);
}

#[test]
fn a_conflist_that_calls_other_networks_stays_and_is_reported() {
    let seen = node(&[("00-multus.conf", MULTUS)]);
    let plan = network(&conflist(), &seen).unwrap();
    assert_eq!(steps(&plan), ["write 05-ferrule.conflist"]);
    assert_eq!(plan.notes, [Note::Delegates { name: "00-multus.conf".to_owned() }]);
}

#[test]
fn the_version_is_that_of_the_results_that_the_node_has() {
    let version = |desired: &Conflist, seen: &Observed| cni_version(desired, seen, &CNI_VERSIONS);
    assert_eq!(version(&conflist(), &node(&[("87-podman.conflist", BRIDGE)])), "1.0.0");
    assert_eq!(version(&conflist(), &node(&[("10-aws.conflist", AWS)])), "0.4.0");
    let put_aside = node(&[("10-aws.conflist.ferrule-aside", AWS)]);
    assert_eq!(version(&conflist(), &put_aside), "0.4.0");
    let ours = text(&conflist(), "1.1.0");
    let both = node(&[(CONFLIST, &ours), ("10-aws.conflist.ferrule-aside", AWS)]);
    assert_eq!(version(&conflist(), &both), "1.1.0");
    let configured = Conflist { cni_version: Some("0.3.1".to_owned()), ..conflist() };
    assert_eq!(version(&configured, &both), "0.3.1");
    let strange = AWS.replace("0.4.0", "9.9.9");
    assert_eq!(version(&conflist(), &node(&[("10-aws.conflist", &strange)])), "1.0.0");
}

#[test]
fn an_edited_conflist_of_ours_is_kept_and_reported_and_an_older_one_is_not() {
    let older = text(&Conflist { mtu: 1500, ..conflist() }, "1.0.0");
    let plan = network(&conflist(), &node(&[(CONFLIST, &older)])).unwrap();
    assert_eq!((steps(&plan), plan.notes), (vec!["write 05-ferrule.conflist".to_owned()], vec![]));

    let theirs = older.replace("1500", "1400,");
    let seen = node(&[(CONFLIST, &theirs)]);
    let plan = network(&conflist(), &seen).unwrap();
    let kept = "write 05-ferrule.conflist.ferrule-edited";
    assert_eq!(steps(&plan), [kept, "write 05-ferrule.conflist"]);
    let [Note::Edited { why }] = &plan.notes[..] else { panic!("{:?}", plan.notes) };
    assert!(why.contains("changed"), "{why}");
    assert_eq!(done(&plan, &seen).confs[&edited()], theirs.as_bytes());
    // Removing keeps it too.
    let plan = remove(&[], true, &seen).unwrap();
    assert_eq!(steps(&plan), [kept, "remove 05-ferrule.conflist"]);
}

#[test]
fn the_conflist_of_a_takeover_stays_as_long_as_it_is_one() {
    let tuning = vec![serde_json::json!({"type": "tuning"})];
    let made =
        Conflist { mtu: 1500, chained: tuning, taken_over: true, ..conflist() }.text("0.4.0");
    let mut seen = node(&[(CONFLIST, &made), ("10-aws.conflist.ferrule-aside", AWS)]);
    let refusal = network(&conflist(), &seen).unwrap_err();
    assert_eq!(refusal, Refusal::NotThere { name: "tuning".to_owned() });
    seen.programs.insert("tuning".to_owned(), FileState::Other);
    let plan = network(&conflist(), &seen).unwrap();
    assert_eq!((steps(&plan), plan.notes), (vec![], vec![Note::NoHostPorts, Note::TakenOver]));
    // Also with another MTU, and theirs goes aside when it is back.
    seen.confs.insert(CONFLIST.to_owned(), made.replace("1500", "1400").into_bytes());
    seen.confs.insert("10-aws.conflist".to_owned(), AWS.as_bytes().to_vec());
    let plan = network(&conflist(), &seen).unwrap();
    assert_eq!(steps(&plan), ["put 10-aws.conflist aside as 10-aws.conflist.ferrule-aside"]);
    // A link to another place or to nothing does not count.
    for broken in [made.replace("ferrule-cni", "aws-cni"), made.replace("1500", "1500\"")] {
        let plan = network(&conflist(), &node(&[(CONFLIST, &broken)])).unwrap();
        assert_eq!(steps(&plan).last().unwrap(), "write 05-ferrule.conflist");
        assert!(!plan.notes.contains(&Note::TakenOver));
    }
}

fn way(owner: Owner, done: bool) -> Option<Migration> {
    Some(Migration { done, ..Migration::to(owner) })
}

#[test]
fn a_node_with_pods_of_amazon_vpc_cni_is_refused_before_a_takeover() {
    let mut seen = node(&[("10-aws.conflist", AWS)]);
    for (migration, theirs, refused) in [
        (None, true, true),
        (way(Owner::Ferrule, false), true, true),
        (way(Owner::AmazonVpcCni, true), true, true),
        (way(Owner::Ferrule, true), true, false),
        (None, false, false),
    ] {
        seen.pods = Pods { ours: false, vpc_cni: theirs, migration };
        let name = "10-aws.conflist".to_owned();
        let refusal = network(&conflist(), &seen).err();
        assert_eq!(refusal, refused.then_some(Refusal::NotTakenOver { name }), "{:?}", seen.pods);
    }
    // Its checkpoint remains when its conflist is set aside or missing.
    for confs in [&[("10-aws.conflist.ferrule-aside", AWS)][..], &[("10-net.conflist", BRIDGE)]] {
        let seen = Observed { pods: Pods { vpc_cni: true, ..Pods::default() }, ..node(confs) };
        assert_eq!(steps(&network(&conflist(), &seen).unwrap()), ["write 05-ferrule.conflist"]);
    }
}

#[test]
fn pods_unknown_to_amazon_vpc_cni_prevent_an_uninstall() {
    let aside = [("10-aws.conflist.ferrule-aside", AWS)];
    let other = [("04-net.conflist.ferrule-aside", BRIDGE), ("10-aws.conflist", AWS)];
    for (confs, ours, migration, refused) in [
        (&aside[..], true, None, true),
        (&aside, true, way(Owner::AmazonVpcCni, false), true),
        (&[], true, way(Owner::Ferrule, true), true),
        (&[], true, way(Owner::Ferrule, false), true),
        (&aside, false, way(Owner::Ferrule, true), false),
        (&other, true, None, false),
        (&other, true, way(Owner::AmazonVpcCni, true), false),
    ] {
        let seen = Observed { pods: Pods { ours, vpc_cni: true, migration }, ..node(confs) };
        for keep_programs in [true, false] {
            let refusal = remove(&[PLUGIN], keep_programs, &seen).err();
            assert_eq!(refusal, refused.then_some(Refusal::HoldsPods), "{confs:?} {:?}", seen.pods);
        }
    }
}

#[test]
fn host_ports_are_served_as_soon_as_portmap_exists() {
    let mut bare = node(&[]);
    bare.programs.remove(PORTMAP);
    let plan = network(&conflist(), &bare).unwrap();
    assert_eq!(plan.notes, [Note::NoHostPorts]);
    let mut after = done(&plan, &bare);
    after.programs.insert(PORTMAP.to_owned(), FileState::Other);
    let plan = network(&conflist(), &after).unwrap();
    assert_eq!((steps(&plan), plan.notes), (vec!["write 05-ferrule.conflist".to_owned()], vec![]));
}

#[test]
fn the_conflist_offers_the_versions_that_all_plugins_support() {
    let offered = |seen: &Observed| -> (String, String) {
        let after = done(&network(&conflist(), seen).unwrap(), seen);
        let value: serde_json::Value = serde_json::from_slice(&after.confs[CONFLIST]).unwrap();
        let versions = value["cniVersions"].as_array().unwrap();
        let newest = versions.last().unwrap().as_str().unwrap().to_owned();
        (value["cniVersion"].as_str().unwrap().to_owned(), newest)
    };
    let mut seen = node(&[]);
    assert_eq!(chained(&conflist(), &seen), [PORTMAP]);
    assert_eq!(offered(&seen), ("1.0.0".to_owned(), "1.0.0".to_owned()));
    for (supported, version, newest) in [("1.1.0", "1.0.0", "1.1.0"), ("0.4.0", "0.4.0", "0.4.0")] {
        let versions = CNI_VERSIONS.into_iter().filter(|version| *version <= supported);
        let versions = versions.map(str::to_owned).collect();
        seen.plugin_versions.insert(PORTMAP.to_owned(), versions);
        assert_eq!(offered(&seen), (version.to_owned(), newest.to_owned()));
    }
}

#[test]
fn a_conflist_never_names_a_missing_plugin() {
    let mut desired = conflist();
    desired.chained = vec![serde_json::json!({"type": "portmap"})];
    assert!(network(&desired, &node(&[])).is_ok());
    desired.chained.push(serde_json::json!({"type": "bandwidth"}));
    let refusal = network(&desired, &node(&[])).unwrap_err();
    assert_eq!(refusal, Refusal::NotThere { name: "bandwidth".to_owned() });
    let bare = Observed::default();
    let refusal = network(&conflist(), &bare).unwrap_err();
    assert!(refusal.to_string().contains("ferrule-cni"), "{refusal}");
}

fn header(number: u8) -> Option<Machine> {
    let mut header = [0x7f, b'E', b'L', b'F', 2, 1].to_vec();
    header.resize(18, 0);
    Machine::of(&[&header[..], &[number, 0]].concat())
}

#[test]
fn programs_are_installed_once_and_only_for_this_machine() {
    let here = header(0x3e).unwrap();
    let none = BTreeMap::new();
    let ours = |plugin| {
        BTreeMap::from([(PLUGIN.to_owned(), plugin), ("ferrule".to_owned(), header(0x3e))])
    };
    let mut seen = Observed::default();
    seen.programs.insert(temporary(PLUGIN), FileState::Other);
    seen.programs.insert("bridge".to_owned(), FileState::Other);
    let plan = programs(&ours(header(0x3e)), &none, here, &seen).unwrap();
    let unfinished = "remove .ferrule-cni.ferrule-new";
    assert_eq!(
        steps(&plan),
        [unfinished, "install program ferrule", "install program ferrule-cni"]
    );
    let after = done(&plan, &seen);
    assert_eq!(programs(&ours(header(0x3e)), &none, here, &after).unwrap(), Plan::default());
    assert_eq!(
        steps(&remove(&[PLUGIN, "ferrule"], false, &after).unwrap())[..2],
        ["remove ferrule-cni", "remove ferrule"]
    );

    let other = programs(&ours(header(0xb7)), &none, here, &seen).unwrap_err().to_string();
    assert!(other.contains("aarch64") && other.contains("x86-64"), "{other}");
    let unknown = programs(&ours(None), &none, here, &seen).unwrap_err();
    assert_eq!(unknown, Refusal::NoProgram { name: PLUGIN.to_owned() });
    assert_eq!(programs(&none, &none, here, &seen), Err(Refusal::NoPlugin));
}

#[test]
fn missing_plugins_are_installed_and_others_stay() {
    let here = header(0x3e).unwrap();
    let ours = BTreeMap::from([(PLUGIN.to_owned(), header(0x3e))]);
    let fallback = ["loopback", "portmap", PLUGIN].map(|name| (name.to_owned(), header(0x3e)));
    let fallback = BTreeMap::from(fallback);
    let mut seen = Observed::default();
    seen.programs.insert("portmap".to_owned(), FileState::Other);
    let plan = programs(&ours, &fallback, here, &seen).unwrap();
    let brought = ["install program ferrule-cni", "install plugin loopback, which the node lacks"];
    assert_eq!(steps(&plan), brought);
    let after = done(&plan, &seen);
    assert_eq!(programs(&ours, &fallback, here, &after).unwrap(), Plan::default());
    // Others may need them as well.
    assert_eq!(steps(&remove(&[PLUGIN], false, &after).unwrap()), ["remove ferrule-cni"]);

    let foreign = BTreeMap::from([("loopback".to_owned(), header(0xb7))]);
    let refusal = programs(&ours, &foreign, here, &seen).unwrap_err();
    assert!(refusal.to_string().contains("loopback was built for aarch64"), "{refusal}");
}

#[test]
fn a_file_that_its_owner_wrote_again_stays() {
    let newer = AWS.replace("0.4.0", "1.0.0");
    let seen = node(&[("10-aws.conflist", &newer), ("10-aws.conflist.ferrule-aside", AWS)]);
    let plan = remove(&[], true, &seen).unwrap();
    assert_eq!((steps(&plan).len(), plan.notes.len()), (0, 1));
    // Installing puts the newer one aside, in place of the one that its owner has replaced.
    let after = done(&network(&conflist(), &seen).unwrap(), &seen);
    assert_eq!(after.confs["10-aws.conflist.ferrule-aside"], newer.as_bytes());
    let same = node(&[("10-aws.conflist", AWS), ("10-aws.conflist.ferrule-aside", AWS)]);
    let plan = remove(&[], true, &same).unwrap();
    assert_eq!(steps(&plan), ["remove 10-aws.conflist.ferrule-aside"]);
}

fn any_node() -> impl Strategy<Value = Observed> {
    let names = [
        "00-bad.conflist",
        "00-multus.conf",
        "04-cilium.json",
        "04-cilium.json.ferrule-aside",
        CONFLIST,
        ".05-ferrule.conflist.ferrule-new",
        "05-ferrule.conflist.ferrule-edited",
        "10-aws.conflist",
        "10-aws.conflist.ferrule-aside",
        "87-podman.conflist",
        "README.md",
    ];
    let ours = text(&conflist(), "1.0.0");
    let older = text(&Conflist { add_wait: 7, ..conflist() }, "0.4.0");
    let over = text(&Conflist { mtu: 1500, taken_over: true, ..conflist() }, "0.4.0");
    let texts = [AWS, MULTUS, BRIDGE, "{", "", &ours, &older, &ours.replace("45", "46"), &over];
    let texts = texts.map(str::to_owned);
    btree_map(select(names.to_vec()), select(texts.to_vec()), 0..8).prop_map(|confs| {
        let confs: Vec<_> = confs.iter().map(|(name, text)| (*name, text.as_str())).collect();
        node(&confs)
    })
}

/// The other networks' files, by their original names; of two versions the newest.
fn of_others(seen: &Observed) -> BTreeMap<&str, &[u8]> {
    let mut found = BTreeMap::new();
    for (name, bytes) in &seen.confs {
        let own = name.strip_suffix(ASIDE).unwrap_or(name);
        if !own.contains("ferrule") {
            found.entry(own).or_insert(&bytes[..]);
        }
    }
    found
}

proptest! {
    /// Checks the laws: the plan converges, rests and resumes at any cut. The runtime never has fewer than one
    /// network if it had one, and no foreign file is lost.
    #[test]
    fn a_network_is_installed(before in any_node(), cut in 0_usize..8) {
        let desired = conflist();
        let plan = network(&desired, &before).unwrap();
        let whole = done(&plan, &before);
        let mut seen = before.clone();
        for op in plan.ops.iter().take(cut) {
            apply(op, &mut seen);
            prop_assert!(networks(&before).is_empty() || !networks(&seen).is_empty());
            prop_assert_eq!(of_others(&seen), of_others(&before));
        }
        let resumed = done(&network(&desired, &seen).unwrap(), &seen);
        prop_assert_eq!(&resumed, &whole);
        prop_assert_eq!(network(&desired, &resumed).unwrap().ops, vec![]);
        let first = networks(&resumed)[0].to_owned();
        let delegates = Conf::read(&resumed.confs[&first]).is_ok_and(|conf| conf.delegates());
        prop_assert!(first == CONFLIST || delegates, "{} comes first", first);
    }

    /// The same for taking it back, whatever is found; and what was put aside has its name again.
    #[test]
    fn a_network_is_removed(before in any_node(), cut in 0_usize..8) {
        let plan = remove(&[PLUGIN], false, &before).unwrap();
        let whole = done(&plan, &before);
        let mut seen = before.clone();
        for op in plan.ops.iter().take(cut) {
            apply(op, &mut seen);
            prop_assert_eq!(of_others(&seen), of_others(&before));
        }
        let resumed = done(&remove(&[PLUGIN], false, &seen).unwrap(), &seen);
        prop_assert_eq!(&resumed, &whole);
        prop_assert_eq!(remove(&[PLUGIN], false, &resumed).unwrap().ops, vec![]);
        prop_assert!(!resumed.confs.contains_key(CONFLIST));
        for name in of_others(&before).keys() {
            prop_assert!(resumed.confs.contains_key(*name), "{} is not back", name);
        }
    }

    /// Installing and uninstalling restores a node, except for files of an earlier installer.
    #[test]
    fn install_and_uninstall_restore_the_node(mut before in any_node()) {
        before.confs.retain(|name, _| !name.contains("ferrule"));
        let there = done(&network(&conflist(), &before).unwrap(), &before);
        prop_assert_eq!(done(&remove(&[], true, &there).unwrap(), &there), before);
    }
}
