//! Tests on generated directory trees.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;

/// Returns the features of a kernel 6.1-x with these files.
fn features_of(files: &[(&str, &str)]) -> BTreeMap<String, Feature> {
    let tree = tempfile::tempdir().unwrap();
    let release = [("proc/sys/kernel/osrelease", "6.1-x\n")];
    for (path, text) in release.iter().chain(files) {
        let path = tree.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    features(tree.path(), &tree.path().join("proc"), &tree.path().join("sys"))
}

#[test]
fn the_kernel_configuration_lists_present_and_absent_features() {
    let found = features_of(&[(
        "boot/config-6.1-x",
        "CONFIG_VETH=y\nCONFIG_NF_NAT_FTP=y\n# CONFIG_NF_NAT is not set\nCONFIG_VLAN_8021Q=m\n",
    )]);
    assert_eq!(found["VETH"], Feature::Present);
    assert_eq!(found["NF_NAT"], Feature::Absent);
    assert_eq!(found["IP_MULTIPLE_TABLES"], Feature::Absent);
    assert_eq!(found["VLAN_8021Q"], Feature::Unknown);
}

#[test]
fn a_module_is_there_only_if_its_file_is() {
    let config = ("boot/config-6.1-x", "CONFIG_VLAN_8021Q=m\nCONFIG_VETH=m\nCONFIG_NF_NAT=m\n");
    let modules =
        ("lib/modules/6.1-x/modules.dep", "kernel/drivers/net/veth.ko.xz: x/nf_nat.ko.xz\n");
    let found = features_of(&[config, modules, ("sys/module/nf_nat/refcnt", "0")]);
    assert_eq!(found["VETH"], Feature::Present);
    assert_eq!(found["VLAN_8021Q"], Feature::Absent);
    // The module is loaded, so its file is not needed.
    assert_eq!(found["NF_NAT"], Feature::Present);
}

#[test]
fn without_a_configuration_the_lists_of_modules_decide() {
    let found =
        features_of(&[("lib/modules/6.1-x/modules.builtin", "kernel/drivers/net/veth.ko\n")]);
    assert_eq!(found["VETH"], Feature::Present);
    assert_eq!(found["NF_TABLES"], Feature::Absent);
    assert_eq!(found["IP_MULTIPLE_TABLES"], Feature::Unknown);
    assert!(features_of(&[]).values().all(|feature| *feature == Feature::Unknown));
}
