//! Fuzz targets for all input from outside.
//!
//! The input is network configurations, arguments and results of other plugins, kernel replies, listings of
//! other programs, policy objects, and torn files. A [`Target`] accepts any bytes and panics if a property
//! does not hold. The properties are more than the absence of a panic. A refusal has the right code and
//! repeats no value. Input that was read has the same meaning after it is written and read again. A part of
//! an input is never taken for the whole.
//!
//! `cargo xtask fuzz` searches for inputs, guided by coverage. `corpus` contains the fewest inputs that reach
//! all known coverage, and each input that ever failed. The tests replay it.

pub mod targets;

/// A value in the seeds that represents a secret. No message may repeat it.
pub const CANARY: &str = "canary";

/// A fuzz target with its properties.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Also the name of its folder in the corpus.
    pub name: &'static str,
    /// Checks one input. Panics if a property does not hold.
    pub run: fn(&[u8]),
}

pub const TARGETS: [Target; 18] = [
    Target { name: "netconf", run: targets::netconf::run },
    Target { name: "environment", run: targets::environment::run },
    Target { name: "prev-result", run: targets::prev_result::run },
    Target { name: "settings", run: targets::settings::run },
    Target { name: "netlink-reply", run: targets::netlink::reply },
    Target { name: "netlink-objects", run: targets::netlink::objects },
    Target { name: "conntrack-reply", run: targets::conntrack::reply },
    Target { name: "socket-reply", run: targets::sockets::reply },
    Target { name: "dns-message", run: targets::dns::message },
    Target { name: "dns-frame", run: targets::dns::frame },
    Target { name: "iptables-save", run: targets::listings::iptables_save },
    Target { name: "nft-list", run: targets::listings::nft_list },
    Target { name: "policy-object", run: targets::policy::object },
    Target { name: "policy-page", run: targets::policy::page },
    Target { name: "policy-old", run: targets::policy::old },
    Target { name: "checkpoint", run: targets::checkpoint::run },
    Target { name: "tombstone", run: targets::words::tombstone },
    Target { name: "words", run: targets::words::run },
];

/// The target with this name.
pub fn target(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}
