//! Options with the meaning that they have in kubectl, and `ferrule version`.

use super::{ferrule, kubeconfig_for, text};
use serde_json::Value;
use std::path::Path;

/// `lesser` may not forward ports. A pod `ferrule-x` is in kube-system.
pub(crate) fn all(admin: &Path) {
    another_user_is_impersonated(admin);
    a_pod_is_named_as_in_kubectl(admin);
    versions_are_those_of_the_cluster(admin);
}

fn another_user_is_impersonated(admin: &Path) {
    let output = ferrule("status", admin, &["--as", "lesser"]);
    let printed = text(&output.stdout);
    assert!(printed.contains("cannot create pods/portforward in kube-system"), "{printed}");
    let output = ferrule("status", admin, &["--as", "none"]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stdout));
    assert!(text(&output.stderr).contains("User \"none\" cannot list"), "{}", text(&output.stderr));
    let masters = ["--as", "none", "--as-group", "system:masters"];
    let output = ferrule("status", admin, &masters);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let output = ferrule("status", admin, &["--as-group", "system:masters"]);
    assert!(text(&output.stderr).contains("--as <USER>"), "{}", text(&output.stderr));
}

fn a_pod_is_named_as_in_kubectl(admin: &Path) {
    for words in [&["ferrule-x", "-n", "kube-system"][..], &["kube-system/ferrule-x"]] {
        let output = ferrule("pod", admin, words);
        let printed = text(&output.stdout);
        assert!(printed.contains("kube-system/ferrule-x"), "{printed}{}", text(&output.stderr));
    }
    let output = ferrule("pod", admin, &["ferrule-x"]);
    let why = "cannot find pod ferrule-x in namespace default";
    assert!(text(&output.stderr).contains(why), "{}", text(&output.stderr));
    let output = ferrule("pod", admin, &["-A"]);
    let printed = text(&output.stdout);
    assert!(
        printed.contains("\nkube-system/ferrule-x   n1 ")
            && printed.contains("   its node's network\n"),
        "{printed}"
    );
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&ferrule("pod", admin, &[]).stdout);
    assert_eq!(printed, "no pods\n", "the context has the namespace default");
    let elsewhere = ["--ferrule-namespace", "elsewhere"];
    let printed = text(&ferrule("status", admin, &elsewhere).stdout);
    assert!(printed.contains("namespace elsewhere has none"), "{printed}");
}

fn versions_are_those_of_the_cluster(admin: &Path) {
    let own = concat!("ferrule ", env!("CARGO_PKG_VERSION"), "\n");
    let output = ferrule("version", admin, &[]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.starts_with(&format!("{own}Kubernetes v1.")), "{printed}");
    assert!(printed.contains("\nferrule-ipamd   unknown   1      repo/ferrule:9\n"), "{printed}");
    assert!(printed.contains("ferrule-ipamd of ferrule-x: cannot forward port 61679"), "{printed}");
    let output = ferrule("version", admin, &["--client", "-o", "json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["ferrule"], env!("CARGO_PKG_VERSION"));

    let folder = tempfile::tempdir().unwrap();
    let nowhere = kubeconfig_for(folder.path(), "http://127.0.0.1:1");
    let output = ferrule("version", &nowhere, &[]);
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), own, "its own version needs no cluster");
}
