//! What others hand us, made up: network configurations, arguments and results of other plugins,
//! replies of the kernel, listings of other programs, objects of network policy, files that were cut
//! off.
//!
//! A [`Target`] takes any bytes and panics when a property does not hold. Beyond *does not panic*
//! the properties are that a refusal has the right code and repeats no value, that what was read
//! means the same when it is written and read again, and that half of something is never taken for
//! the whole. `cargo xtask fuzz` searches for inputs, guided by what they reach; `corpus` holds the
//! fewest that reach all that was ever reached, and each that ever failed. The tests replay it.

pub mod targets;

/// The value that stands for a secret in the seeds. No message may repeat it.
pub const CANARY: &str = "canary";

/// What is fed, and the properties of it.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and its folder's in the corpus.
    pub name: &'static str,
    /// Tries one input. It panics when a property does not hold.
    pub run: fn(&[u8]),
}

/// All of them.
pub const TARGETS: [Target; 14] = [
    Target { name: "netconf", run: targets::netconf::run },
    Target { name: "environment", run: targets::environment::run },
    Target { name: "prev-result", run: targets::prev_result::run },
    Target { name: "settings", run: targets::settings::run },
    Target { name: "netlink-reply", run: targets::netlink::reply },
    Target { name: "netlink-objects", run: targets::netlink::objects },
    Target { name: "iptables-save", run: targets::listings::iptables_save },
    Target { name: "nft-list", run: targets::listings::nft_list },
    Target { name: "policy-object", run: targets::policy::object },
    Target { name: "policy-page", run: targets::policy::page },
    Target { name: "policy-old", run: targets::policy::old },
    Target { name: "checkpoint", run: targets::checkpoint::run },
    Target { name: "tombstone", run: targets::words::tombstone },
    Target { name: "words", run: targets::words::run },
];

/// The target of this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
