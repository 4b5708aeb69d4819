//! Tests on generated directory trees.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use std::os::unix::fs::symlink;

struct Tree(tempfile::TempDir);

impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let path = tree.0.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        tree
    }

    fn link(self, at: &str, to: &str) -> Self {
        let at = self.0.path().join(at);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(to, at).unwrap();
        self
    }

    fn root(&self) -> &Path {
        self.0.path()
    }
}

#[test]
fn settings_are_read_for_each_link_and_absent_where_the_kernel_has_none() {
    let tree = Tree::of(&[
        ("sys/net/ipv4/ip_forward", "1\n"),
        ("sys/net/ipv4/conf/eth0/rp_filter", "2\n"),
        // Even root cannot read a folder as a file.
        ("sys/net/netfilter/nf_conntrack_max/x", ""),
    ]);
    let found = sysctls(tree.root(), ["eth0", "eth1"].into_iter());
    assert_eq!(found["net/ipv4/ip_forward"], Ok("1".to_owned()));
    assert_eq!(found["net/ipv4/conf/eth0/rp_filter"], Ok("2".to_owned()));
    assert!(!found.contains_key("net/ipv4/conf/eth1/rp_filter"));
    assert!(
        found["net/netfilter/nf_conntrack_max"].as_ref().unwrap_err().contains("nf_conntrack_max")
    );
}

#[test]
fn files_that_set_a_sysctl_at_boot_are_found_in_the_order_of_boot() {
    let tree = Tree::of(&[
        ("usr/lib/sysctl.d/50-default.conf", "# x\n-net.ipv4.conf.all.rp_filter = 1\n"),
        ("usr/lib/sysctl.d/90-hidden.conf", "net.ipv4.ip_forward=0\n"),
        ("etc/sysctl.d/90-hidden.conf", "net/ipv4/ip_forward=1\n"),
        ("etc/sysctl.conf", "net.ipv4.conf.eth0/100.rp_filter=2\n"),
    ]);
    let found = sysctl_files(tree.root());
    let short: Vec<(&str, &str)> =
        found.iter().map(|(name, value, _)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        short,
        [
            ("net/ipv4/conf/all/rp_filter", "1"),
            ("net/ipv4/ip_forward", "1"),
            ("net/ipv4/conf/eth0.100/rp_filter", "2"),
        ]
    );
    assert!(found[0].2.ends_with("usr/lib/sysctl.d/50-default.conf"));
}

#[test]
fn units_are_enabled_by_wants_and_active_by_their_invocation_unless_masked() {
    let tree = Tree::of(&[])
        .link("etc/systemd/system/timers.target.wants/nm-cloud-setup.timer", "/x")
        .link("etc/systemd/system/timers.target.wants/masked.timer", "/x")
        .link("etc/systemd/system/masked.timer", "/dev/null")
        .link("run/systemd/units/invocation:NetworkManager.service", "0123");
    let unit = |name: &str, enabled, active| Unit { name: name.to_owned(), enabled, active };
    assert_eq!(
        units(tree.root()),
        [unit("NetworkManager.service", false, true), unit("nm-cloud-setup.timer", true, false)]
    );
}

#[test]
fn the_udev_rules_of_ec2_net_utils_are_found_unless_masked() {
    let rule = "SUBSYSTEM==\"net\", ENV{SYSTEMD_WANTS}+=\"policy-routes@$name.service\"\n";
    let path = "usr/lib/udev/rules.d/99-vpc-policy-routes.rules";
    let tree = Tree::of(&[(path, rule), ("usr/lib/udev/rules.d/60-x.rules", "# policy-routes@\n")]);
    let found = udev_rules(tree.root());
    assert_eq!(found.len(), 1);
    assert!(found[0].ends_with(path));
    let tree = tree.link("etc/udev/rules.d/99-vpc-policy-routes.rules", "/dev/null");
    assert_eq!(udev_rules(tree.root()), Vec::<String>::new());
}

#[test]
fn link_files_come_in_order_with_whether_they_are_for_pods_links() {
    let file = |matching: &str, policy: &str| {
        format!("[Match]\n{matching}\n\n[Link]\nNamePolicy=keep\nMACAddressPolicy={policy}\n")
    };
    let (default, own) = (file("OriginalName=*", "persistent"), file("OriginalName=eni*", "none"));
    let (card, veth) = (file("Driver=ena", "none"), file("Driver=veth br*", "none"));
    let tree = Tree::of(&[
        ("usr/lib/systemd/network/99-default.link", default.as_str()),
        ("etc/systemd/network/20-own.link", own.as_str()),
        ("etc/systemd/network/10-card.link", card.as_str()),
        ("run/systemd/network/30-veth.link", veth.as_str()),
    ]);
    let found = link_files(tree.root(), "eni");
    let found: Vec<(bool, Option<&str>)> =
        found.iter().map(|file| (file.matches_veth, file.mac_policy.as_deref())).collect();
    assert_eq!(
        found,
        [
            (false, Some("none")),
            (true, Some("none")),
            (true, Some("none")),
            (true, Some("persistent")),
        ]
    );
}

#[test]
fn settings_of_network_managers_are_read_in_order() {
    let tree = Tree::of(&[
        ("etc/systemd/networkd.conf", "[Network]\nManageForeignRoutes=no\n"),
        (
            "usr/lib/systemd/networkd.conf.d/80-ec2.conf",
            "[Network]\nManageForeignRoutingPolicyRules=no\nManageForeignRoutes=yes\n",
        ),
        (
            "etc/NetworkManager/conf.d/eni.conf",
            "[keyfile]\nunmanaged-devices=interface-name:eni*;mac:02:00:00:00:00:01\n",
        ),
    ]);
    assert_eq!(networkd_keeps(tree.root()), (true, false));
    assert_eq!(unmanaged(tree.root()), ["interface-name:eni*", "mac:02:00:00:00:00:01"]);
    let empty = Tree::of(&[]);
    assert_eq!(networkd_keeps(empty.root()), (false, false));
    assert_eq!(unmanaged(empty.root()), Vec::<String>::new());
}
