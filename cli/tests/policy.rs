//! `ferrule policy` as a process: its output equals the examples of the guide, and errors are reported.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

use serde_json::Value;
use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs `ferrule policy` on the files of a folder, unless the arguments name others.
fn ferrule(folder: &Path, words: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    command.current_dir(folder).args(words);
    let option = if words.contains(&"diff") { "--on" } else { "-f" };
    if !words.contains(&option) && !words.contains(&"--help") {
        command.args([option, "."]);
    }
    command.output().unwrap()
}

fn examples() -> PathBuf {
    root().join("docs/examples/policy")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// A folder with one file.
fn with_file(name: &str, content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), content).unwrap();
    folder
}

const TWO_PODS: &str = "\
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: x, labels: {app: a}}
status: {podIPs: [{ip: 10.0.0.1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: b, namespace: x, labels: {app: b}}
status: {podIPs: [{ip: 10.0.0.2}]}
";

const CLOSED: &str = "\
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: closed, namespace: x}
spec: {podSelector: {}}
";

#[test]
fn each_command_of_the_guide_prints_the_text_of_the_guide() {
    let guide = fs::read_to_string(root().join("docs/guide/policy.md")).unwrap();
    let mut commands = 0;
    for block in guide.split("```console\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let mut code = None;
        for shown in block.split("$ ").skip(1) {
            let (command, wanted) = shown.split_once('\n').unwrap();
            let stdout = if command == "echo $?" {
                format!("{}\n", code.unwrap())
            } else {
                let words: Vec<&str> = command.split(' ').collect();
                assert_eq!(words.first(), Some(&"ferrule"), "{command}");
                let output = ferrule(&examples(), words.get(1..).unwrap());
                code = output.status.code();
                commands += 1;
                text(&output.stdout)
            };
            assert_eq!(stdout, wanted, "{command}");
        }
    }
    assert!(commands >= 7, "{commands} commands");
}

#[test]
fn a_file_that_cannot_be_read_stops_no_other_and_sets_the_exit_code() {
    let folder = with_file("pods.yaml", TWO_PODS);
    fs::create_dir(folder.path().join("below")).unwrap();
    fs::write(folder.path().join("below/bad.yml"), format!("{CLOSED}---\n{{: :\n---\nkind: Pod\n"))
        .unwrap();
    fs::write(folder.path().join("worse.json"), "{").unwrap();
    fs::write(folder.path().join("notes.txt"), "{").unwrap();
    let output = ferrule(folder.path(), &["policy", "verdict", "--from", "x/a", "--to", "x/b:80"]);
    assert_eq!(output.status.code(), Some(2));
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.starts_with("DENIED (dropped): TCP to port 80 from x/a (10.0.0.1)"), "{stdout}");
    let line = CLOSED.lines().count() + 2;
    for fault in [
        &*format!("below/bad.yml, document 2, line {line}: cannot read YAML: "),
        "below/bad.yml, document 3: it lacks",
        "worse.json, line 1: cannot read JSON: EOF while parsing an object at column 1; fix the syntax",
    ] {
        assert!(stderr.contains(&format!("NOT UNDERSTOOD: ./{fault}")), "{stderr}");
    }
    assert!(!stderr.contains("<input>"), "{stderr}");
    assert!(!stderr.contains("notes.txt"), "{stderr}");
}

#[test]
fn the_exit_code_of_verdict_is_its_answer() {
    let folder = with_file("pods.yaml", TWO_PODS);
    let ask = || ferrule(folder.path(), &["policy", "verdict", "--from", "x/a", "--to", "x/b:80"]);
    assert_eq!(ask().status.code(), Some(0));
    fs::write(folder.path().join("closed.yaml"), CLOSED).unwrap();
    assert_eq!(ask().status.code(), Some(1));
}

#[test]
fn a_question_that_is_not_understood_is_an_error_with_a_next_step() {
    let folder = with_file("pods.yaml", TWO_PODS);
    let rows: [(&[&str], &str); 9] = [
        (&["--from", "x/c", "--to", "x/b:80"], "there is no pod x/c"),
        (&["--from", "x/a", "--to", "x/b"], "write it as x/b:80"),
        (&["--from", "x/a", "--to", "x/b:65536"], "65536 is no port: 0 to 65535"),
        (&["--from", "x/a", "--to", "10.0.0.2:-1"], "-1 is no port: 0 to 65535"),
        (&["--from", "x/a", "--to", "x/b:web"], "no port of the name \"web\""),
        (&["--from", "a", "--to", "x/b:80"], "neither a pod as namespace/name nor an address"),
        (&["--from", "x/a", "--to", "x/b:80", "--protocol", "ip"], "is no protocol"),
        (&["--from", "x/a", "--to", "x/b:80", "--protocol", "icmp"], "has a port"),
        (&["--from", "x/a", "--to", "[2001:db8::1]:80"], "no address of one family"),
    ];
    for (words, wanted) in rows {
        let output = ferrule(folder.path(), &[&["policy", "verdict"], words].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{words:?}: {stderr}");
        assert!(stderr.contains(wanted), "{words:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{words:?}");
    }
}

#[test]
fn standard_input_is_read_as_a_list_of_the_cluster() {
    let list = serde_json::json!({
        "apiVersion": "v1", "kind": "List",
        "items": [
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "namespace": "x"},
             "status": {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]}},
            {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "b", "namespace": "x"},
             "status": {"podIPs": [{"ip": "2001:db8::2"}]}},
        ],
    });
    let words = ["policy", "verdict", "-f", "-", "--from", "x/a", "--to", "x/b:80", "-o", "json"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_ferrule"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(list.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["packet"]["destination"], "2001:db8::2");
    assert_eq!(answer["verdict"]["decision"], "allow");
    assert_eq!(answer["files"], serde_json::json!({}));
}

#[test]
fn every_verb_answers_in_json() {
    let rows: [&[&str]; 6] = [
        &["verdict", "-f", "cluster", "--from", "shop/web-1", "--to", "pay/db-0:5432"],
        &["of", "pay/db-0", "-f", "cluster"],
        &["matrix", "-f", "cluster"],
        &["diff", "-f", "change/close-shop.yaml", "--on", "cluster"],
        &["lint", "-f", "lint"],
        &["convert", "-f", "change/old.yaml"],
    ];
    for words in rows {
        let output = ferrule(&examples(), &[&["policy"], words, &["-o", "json"]].concat());
        let read: Result<Value, _> = serde_json::from_slice(&output.stdout);
        assert!(read.is_ok(), "{words:?}: {}", text(&output.stdout));
    }
}

#[test]
fn a_finding_has_its_place_in_json_too() {
    let output = ferrule(&examples(), &["policy", "lint", "-f", "lint", "-o", "json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = answer["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    assert!(findings.iter().all(|finding| finding["at"] == "lint/mistakes.yaml"), "{findings:?}");
}

#[test]
fn no_change_is_shown_if_the_applied_objects_exist() {
    let words = ["policy", "diff", "-f", "cluster/policies.yaml", "--on", "cluster/pods.yaml"];
    assert_eq!(ferrule(&examples(), &words).status.code(), Some(1));
    let again = tempfile::tempdir().unwrap();
    let copy = again.path().join("policies.yaml");
    fs::copy(examples().join("cluster/policies.yaml"), &copy).unwrap();
    let words = ["policy", "diff", "-f", copy.to_str().unwrap(), "--on", "cluster"];
    assert_eq!(ferrule(&examples(), &words).status.code(), Some(0));
}

#[test]
fn a_name_that_dns_gave_counts() {
    let policy = "\
apiVersion: policy.networking.k8s.io/v1alpha2
kind: ClusterNetworkPolicy
metadata: {name: names}
spec:
  tier: Admin
  priority: 1
  subject: {namespaces: {}}
  egress:
    - {action: Accept, to: [{domainNames: ['*.example.com']}]}
    - {action: Deny, to: [{networks: [0.0.0.0/0]}]}
";
    let folder = with_file("pods.yaml", TWO_PODS);
    fs::write(folder.path().join("names.yaml"), policy).unwrap();
    let ask = ["policy", "verdict", "--from", "x/a", "--to", "203.0.113.5:443"];
    assert_eq!(ferrule(folder.path(), &ask).status.code(), Some(1));
    let named = [&ask[..], &["--name", "www.example.com"]].concat();
    assert_eq!(ferrule(folder.path(), &named).status.code(), Some(0));
}

#[test]
fn the_picture_is_well_formed_and_names_every_pod() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reach.svg");
    let words = ["policy", "matrix", "-f", "cluster", "--svg", path.to_str().unwrap()];
    assert!(ferrule(&examples(), &words).status.success());
    let svg = fs::read_to_string(&path).unwrap();
    for word in ["<svg", "</svg>", "shop (all 2)", "pay (all 3) to pay/db-0: TCP 5432"] {
        assert!(svg.contains(word), "{word}");
    }
    assert_eq!(svg.matches("<g>").count(), 9);
    assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
    assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
}

/// A policy of a version that is no longer enforced; `more` is added to its spec.
fn old_policy(name: &str, more: &str) -> String {
    format!(
        "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\n\
         metadata: {{name: {name}}}\n\
         spec: {{priority: 1, subject: {{namespaces: {{}}}}{more}}}\n"
    )
}

#[test]
fn a_duplicate_object_and_a_policy_of_an_old_version_are_reported() {
    let theirs = "\
apiVersion: cilium.io/v2
kind: CiliumNetworkPolicy
metadata: {name: theirs, namespace: x}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: none, namespace: x}
";
    let old = old_policy("old", "");
    let all = format!("{TWO_PODS}---\n{CLOSED}---\n{CLOSED}---\n{old}---\n{theirs}");
    let folder = with_file("1.yaml", &all);
    let words = ["policy", "verdict", "--from", "x/a", "--to", "x/b:80"];
    let output = ferrule(folder.path(), &words);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("NetworkPolicy x/closed: also in ./1.yaml, document 3"), "{stderr}");
    for kind in ["AdminNetworkPolicy old", "CiliumNetworkPolicy theirs"] {
        assert!(stderr.contains(kind), "{stderr}");
    }
    assert!(!stderr.contains("Deployment"), "{stderr}");
    let lint = ferrule(folder.path(), &["policy", "lint"]);
    assert_eq!(lint.status.code(), Some(1));
    let found = text(&lint.stdout);
    assert!(found.contains("AdminNetworkPolicy.policy.networking.k8s.io old"), "{found}");
    assert!(found.contains("CiliumNetworkPolicy.cilium.io x/theirs"), "{found}");
}

#[test]
fn a_field_without_conversion_is_reported_and_the_rest_is_written() {
    let rule = ", ingress: [{action: Allow, from: [{namespaces: {sameLabels: [team]}}]}]";
    let old = format!("{}---\n{}", old_policy("good", ""), old_policy("bad", rule));
    let folder = with_file("old.yaml", &old);
    let output = ferrule(folder.path(), &["policy", "convert", "-f", "old.yaml"]);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stdout.contains("name: good") && !stdout.contains("name: bad"), "{stdout}");
    assert!(
        stderr.contains("old.yaml, document 2: AdminNetworkPolicy bad: `spec.ingress[0]"),
        "{stderr}"
    );
}

#[test]
fn a_policy_of_a_misspelled_kind_is_an_error_and_a_finding() {
    for (version, kind) in [
        ("networking.k8s.io/v1", "Networkpolicy"),
        ("networking.k8s.io/v1", "NetworkPolicies"),
        ("crd.antrea.io/v1beta1", "ACNP"),
    ] {
        let policy = CLOSED.replace("networking.k8s.io/v1", version);
        let policy = policy.replace("kind: NetworkPolicy", &format!("kind: {kind}"));
        let folder = with_file("all.yaml", &format!("{TWO_PODS}---\n{policy}"));
        let output =
            ferrule(folder.path(), &["policy", "verdict", "--from", "x/a", "--to", "x/b:80"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        let wanted = format!("document 3: {kind} closed of {version} is not enforced");
        assert!(stderr.contains("NOT UNDERSTOOD: ") && stderr.contains(&wanted), "{stderr}");
        let lint = ferrule(folder.path(), &["policy", "lint"]);
        assert_eq!(lint.status.code(), Some(2));
        let found = text(&lint.stdout);
        assert!(found.contains(&format!("error: {kind}.")), "{found}");
    }
    let lists = [
        "kind: List\napiVersion: v1\nitem: []\n",
        "kind: NetworkPolicyList\napiVersion: networking.k8s.io/v1\nitems: {a: {}}\n",
    ];
    for list in lists {
        let folder = with_file("list.yaml", list);
        let output = ferrule(folder.path(), &["policy", "lint"]);
        assert_eq!(output.status.code(), Some(2), "{list}");
        assert!(text(&output.stderr).contains("without a list as `items`"), "{list}");
    }
}

#[test]
fn a_folder_with_links_to_itself_is_read_once() {
    let folder = with_file("all.yaml", &format!("{TWO_PODS}---\n{CLOSED}"));
    for link in ["one", "two"] {
        std::os::unix::fs::symlink(".", folder.path().join(link)).unwrap();
    }
    let output = ferrule(folder.path(), &["policy", "lint"]);
    assert_eq!(text(&output.stdout), "no findings\n", "{}", text(&output.stderr));
}

#[test]
fn a_duplicate_key_is_refused_in_json_and_in_yaml() {
    let pod = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"x",
        "labels":{"app":"a","app":"b"}}, "n": [1.5, -1, 7, true, null]}"#;
    for name in ["pod.json", "pod.yaml"] {
        let folder = with_file(name, pod);
        let output = ferrule(folder.path(), &["policy", "lint"]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("app"), "{stderr}");
        let once = pod.replace(r#","app":"b""#, "");
        let folder = with_file(name, &once);
        let output = ferrule(folder.path(), &["policy", "lint"]);
        assert!(!text(&output.stderr).contains("NOT UNDERSTOOD"), "{}", text(&output.stderr));
    }
}

#[test]
fn versions_without_conversion_are_reported_with_the_replacement() {
    let policy = CLOSED.replace("networking.k8s.io/v1", "networking.k8s.io/v2");
    let folder = with_file("new.yaml", &policy);
    let output = ferrule(folder.path(), &["policy", "convert"]);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(
        stderr.contains("NOT CONVERTED: ") && !stderr.contains("of an old version"),
        "{stderr}"
    );
    let next = "write it as NetworkPolicy of networking.k8s.io/v1";
    assert!(stderr.contains(next), "{stderr}");
    let lint = ferrule(folder.path(), &["policy", "lint"]);
    assert!(text(&lint.stdout).contains(next), "{}", text(&lint.stdout));
}

#[test]
fn lint_reports_an_empty_input_and_duplicates() {
    let folder = tempfile::tempdir().unwrap();
    let output = ferrule(folder.path(), &["policy", "lint"]);
    assert!(text(&output.stderr).contains("no objects of the kinds that policy uses"));
    let folder = with_file("1.yaml", &format!("{TWO_PODS}---\n{CLOSED}---\n{CLOSED}"));
    let output = ferrule(folder.path(), &["policy", "lint"]);
    let found = text(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{found}");
    assert!(found.contains("warning: NetworkPolicy x/closed metadata.name: also in"), "{found}");
}

#[test]
fn a_protocol_by_its_number_is_asked_as_by_its_name() {
    let only_udp = CLOSED
        .replace("{podSelector: {}}", "{podSelector: {}, ingress: [{ports: [{protocol: UDP}]}]}");
    let folder = with_file("all.yaml", &format!("{TWO_PODS}---\n{only_udp}"));
    for (number, to, code) in [
        ("17", "x/b:53", 0),
        ("6", "x/b:53", 1),
        ("132", "x/b:53", 1),
        ("6", "x/b", 2),
        ("1", "x/b", 1),
        ("58", "x/b:53", 2),
        ("47", "x/b", 1),
    ] {
        let words = ["policy", "verdict", "--from", "x/a", "--to", to, "--protocol", number];
        let output = ferrule(folder.path(), &words);
        assert_eq!(output.status.code(), Some(code), "{number}: {}", text(&output.stdout));
    }
}

#[test]
fn a_pods_answer_warns_of_a_policy_that_denies_too_much() {
    let odd = CLOSED.replace(
        "{podSelector: {}}",
        "{podSelector: {matchExpressions: [{key: a, operator: Is}]}}",
    );
    let folder = with_file("all.yaml", &format!("{TWO_PODS}---\n{odd}"));
    let ask = ["policy", "verdict", "--from", "x/a", "--to", "x/b:80"];
    let stdout = text(&ferrule(folder.path(), &ask).stdout);
    assert!(
        stdout.contains("NetworkPolicy x/closed may be about more pods than were meant"),
        "{stdout}"
    );
    let stdout = text(&ferrule(folder.path(), &["policy", "of", "x/b"]).stdout);
    assert!(stdout.contains("may apply to more pods than intended: "), "{stdout}");
    let json = ferrule(folder.path(), &[&ask[..], &["-o", "json"]].concat());
    let answer: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(answer["verdict"]["ingress"]["wider"][0]["policy"]["name"], "closed");
}

#[test]
fn control_characters_of_files_do_not_reach_the_terminal() {
    let odd = CLOSED.replace("name: closed", r#"name: "p\e[2J\nALLOWED""#);
    let folder = with_file("all.yaml", &format!("{TWO_PODS}---\n{odd}---\n{odd}"));
    let words = ["policy", "verdict", "--from", "x/a", "--to", "x/b:80"];
    let output = ferrule(folder.path(), &words);
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(stdout.contains(r"p\u{1b}[2J") && stderr.contains(r"p\u{1b}[2J"), "{stdout}{stderr}");
    assert!(!stdout.contains("\nALLOWED") && !stderr.contains("\nALLOWED"), "{stdout}{stderr}");
    assert!(!stdout.contains('\u{1b}') && !stderr.contains('\u{1b}'), "{stdout}{stderr}");
}

#[test]
fn a_port_is_asked_for_with_brackets_where_the_address_needs_them() {
    let folder = with_file("pods.yaml", TWO_PODS);
    let words = ["policy", "verdict", "--from", "fd00::9", "--to", "fd00::1:80"];
    let stderr = text(&ferrule(folder.path(), &words).stderr);
    assert!(stderr.contains("write it as [fd00::1:80]:80"), "{stderr}");
}

#[test]
fn a_reader_of_the_answer_may_stop_early() {
    let words = ["policy", "verdict", "-f", "-", "--from", "x/a", "--to", "x/b:80"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_ferrule"))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Before it can have answered.
    drop(child.stdout.take());
    let input = format!("{TWO_PODS}---\n{CLOSED}");
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(1), ""));
}

#[test]
fn a_pod_is_not_answered_for_another_that_has_its_address() {
    let late = TWO_PODS
        .replace("name: b, namespace: x", "name: b, namespace: x, uid: u")
        .replace("10.0.0.2", "10.0.0.1");
    let third = TWO_PODS.split("---").next().unwrap().replace("name: a", "name: c");
    let third = third.replace("10.0.0.1", "10.0.0.3");
    let folder = with_file("1.yaml", &format!("{late}---\n{third}---\n{CLOSED}"));
    for (from, to) in [("x/c", "x/a:80"), ("x/a", "x/c:80")] {
        let output = ferrule(folder.path(), &["policy", "verdict", "--from", from, "--to", to]);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{stderr}");
        assert!(stderr.contains("10.0.0.1 of x/a") && stderr.contains("newer pod x/b"), "{stderr}");
    }
    let output = ferrule(folder.path(), &["policy", "verdict", "--from", "x/c", "--to", "x/b:80"]);
    assert_eq!(output.status.code(), Some(1));
    let found = text(&ferrule(folder.path(), &["policy", "lint"]).stdout);
    assert!(
        found.contains("warning: Pod x/a status.podIPs: 10.0.0.1 also belongs to Pod x/b"),
        "{found}"
    );
    let matrix = text(&ferrule(folder.path(), &["policy", "matrix"]).stdout);
    assert!(matrix.contains("x (all 2)") && !matrix.contains("x/a"), "{matrix}");
}

#[test]
fn findings_are_in_the_order_of_the_list_and_have_a_fix() {
    let rule = "{from: [{}]}";
    let rules = [rule; 12].join(", ");
    let policy =
        CLOSED.replace("{podSelector: {}}", &format!("{{podSelector: {{}}, ingress: [{rules}]}}"));
    let folder = with_file("1.yaml", &policy);
    let found = text(&ferrule(folder.path(), &["policy", "lint"]).stdout);
    let place = |index: usize| found.find(&format!("spec.ingress[{index}]")).unwrap();
    assert!((1..12).all(|index| place(index - 1) < place(index)), "{found}");

    let group = "\
apiVersion: crd.antrea.io/v1beta1
kind: ClusterNetworkPolicy
metadata: {name: p}
spec:
  priority: 1e308
  appliedTo: [{podSelector: {}}]
  ingress: [{action: Drop, from: [{group: none}]}]
---
apiVersion: crd.antrea.io/v1beta1
kind: ClusterGroup
metadata: {name: empty}
spec: {}
";
    let folder = with_file("1.yaml", group);
    let found = text(&ferrule(folder.path(), &["policy", "lint"]).stdout);
    for wanted in [
        "until that is fixed: create ClusterGroup none",
        "ClusterGroup.crd.antrea.io empty spec: it is empty, so it has no members",
        "spec.priority: 1e308 is not within 1 to 10000",
    ] {
        assert!(found.contains(wanted), "{wanted}: {found}");
    }
    let folder = with_file("1.json", "[]");
    let stderr = text(&ferrule(folder.path(), &["policy", "lint"]).stderr);
    assert!(stderr.contains("this is no object: write one with `apiVersion`"), "{stderr}");
}
