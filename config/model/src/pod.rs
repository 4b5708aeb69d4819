//! Identity of a pod's interface, and the name of its host end.

use crate::registry;
use serde::{Deserialize, Serialize};
use sha1::{Digest, Sha1};
use std::{fmt, fmt::Write as _};

/// A pod as people know it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodName {
    pub namespace: String,
    pub name: String,
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// One interface of one sandbox: the unit that ADD and DEL speak of.
///
/// A pod of the same name that comes later has another container id, so a DEL that arrives late
/// cannot be mistaken for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct PodKey {
    /// The CNI network's name.
    pub network: String,
    /// The runtime's id of the sandbox.
    pub container_id: String,
    /// The interface's name in the pod, such as `eth0`.
    pub ifname: String,
}

/// A key that the CNI specification does not allow.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {value:?} is not valid: {rule}")]
pub struct InvalidKey {
    pub field: &'static str,
    pub value: String,
    pub rule: &'static str,
}

const ALIAS_PREFIX: &str = "ferrule:";
/// The kernel keeps at most this many bytes of an alias (`IFALIASZ` less the final zero).
const ALIAS_MAX: usize = 255;

impl PodKey {
    /// Checks each part against the CNI specification.
    ///
    /// # Errors
    /// Names the first part that breaks a rule.
    pub fn new(
        network: impl Into<String>,
        container_id: impl Into<String>,
        ifname: impl Into<String>,
    ) -> Result<Self, InvalidKey> {
        let key = Self {
            network: network.into(),
            container_id: container_id.into(),
            ifname: ifname.into(),
        };
        let rule = "it starts with a letter or digit and holds only letters, digits, _ . -";
        for (field, value) in [("network name", &key.network), ("container id", &key.container_id)]
        {
            if !is_token(value) {
                return Err(InvalidKey { field, value: value.clone(), rule });
            }
        }
        if !is_ifname(&key.ifname) {
            let rule = "an interface name has 1 to 15 bytes without / : or white space";
            return Err(InvalidKey { field: "interface name", value: key.ifname, rule });
        }
        if key.alias().len() > ALIAS_MAX {
            let rule = "network name, container id and interface name have too many bytes together";
            return Err(InvalidKey { field: "container id", value: key.container_id, rule });
        }
        Ok(key)
    }

    /// The alias (`ifalias`) that marks the host veth as this interface's.
    pub fn alias(&self) -> String {
        format!("{ALIAS_PREFIX}{}/{}/{}", self.network, self.container_id, self.ifname)
    }

    /// The key of the pod's interface `number`, if `self` is the key of its first one. The key distinguishes the
    /// host ends of a pod on several network cards.
    #[must_use]
    pub fn interface(&self, number: u8) -> Self {
        let mut key = self.clone();
        if number > 0 {
            key.ifname = format!("{}{number}", registry::FURTHER_INTERFACE);
        }
        key
    }

    /// The interface's number among those of its pod: what [`PodKey::interface`] was given.
    pub fn number(&self) -> u8 {
        let further = self.ifname.strip_prefix(registry::FURTHER_INTERFACE);
        further.and_then(|number| number.parse().ok()).unwrap_or(0)
    }

    /// True if `other` is an interface of the same pod from the same ADD: itself, or a further one.
    pub fn covers(&self, other: &Self) -> bool {
        let of_sandbox =
            (&self.network, &self.container_id) == (&other.network, &other.container_id);
        of_sandbox && (other.ifname == self.ifname || other.number() > 0)
    }

    /// Reads a key back from an alias; `None` if the link is not ours.
    pub fn from_alias(alias: &str) -> Option<Self> {
        let mut parts = alias.strip_prefix(ALIAS_PREFIX)?.split('/');
        let (network, container_id, ifname) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() {
            return None;
        }
        Self::new(network, container_id, ifname).ok()
    }

    /// Forty hex digits that stand for the key, fit for a file name.
    pub fn digest(&self) -> String {
        hex(&Sha1::digest(self.alias().as_bytes()))
    }
}

impl fmt::Display for PodKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.network, self.container_id, self.ifname)
    }
}

fn is_token(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

fn is_ifname(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && !text.contains(|c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control())
}

/// The part of a host veth's name that identifies the interface: the first 44 bits of SHA-1 over `<namespace>.<pod>`.
/// A further interface has `.<index>` behind the pod's name.
///
/// Two pods can have the same one: `ns/pod.1` and the second interface of `ns/pod` always have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VethHash(u64);

impl VethHash {
    /// The hash of the pod's interface number `index` (0 for the first).
    pub fn of(pod: &PodName, index: u8) -> Self {
        let mut hashed = format!("{}.{}", pod.namespace, pod.name);
        if index > 0 {
            let _ = write!(hashed, ".{index}");
        }
        let digest: [u8; 20] = Sha1::digest(hashed.as_bytes()).into();
        let [a, b, c, d, e, f, ..] = digest;
        Self(u64::from_be_bytes([0, 0, a, b, c, d, e, f]) >> 4)
    }
}

impl fmt::Display for VethHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:011x}", self.0)
    }
}

/// The name of a pod's host veth: prefix and [`VethHash`] in 11 hex digits.
/// The form is the one that amazon-vpc-cni, Calico and the AWS policy agent expect.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct VethName(String);

impl VethName {
    /// The host veth of the pod's interface number `index` (0 for the first).
    pub fn of(prefix: &str, pod: &PodName, index: u8) -> Self {
        Self(format!("{prefix}{}", VethHash::of(pod, index)))
    }

    /// The name of an existing host veth, such as one of amazon-vpc-cni with another prefix.
    pub fn observed(name: &str) -> Self {
        Self(name.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VethName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_veths_are_named_as_amazon_vpc_cni_names_them() {
        let veth = |namespace: &str, name: &str, index| {
            let pod = PodName { namespace: namespace.into(), name: name.into() };
            VethName::of("eni", &pod, index).0
        };
        assert_eq!(veth("default", "web-0", 0), "eni0d7763386da");
        assert_eq!(veth("default", "web-0", 1), "enib813f772d20");
        assert_eq!(veth("kube-system", "coredns-abc", 0), "eni3d5d6ab04b5");
        assert_eq!(veth("kube-system", "coredns-abc", 1), "eni769f2b6ef39");
    }

    #[test]
    fn two_pods_can_have_one_host_veth() {
        let hash = |namespace: &str, name: &str, index| {
            let pod = PodName { namespace: namespace.into(), name: name.into() };
            VethHash::of(&pod, index)
        };
        assert_eq!(hash("shop", "web-282697", 0), hash("tenant", "x-5499148", 0));
        assert_eq!(hash("shop", "web", 1), hash("shop", "web.1", 0));
        assert_ne!(hash("shop", "web", 0), hash("shop", "web", 1));
    }

    #[test]
    fn a_key_survives_its_alias() {
        let key = PodKey::new("aws-cni", "a1b2", "eth0").expect("a valid key");
        assert_eq!(PodKey::from_alias(&key.alias()), Some(key));
        for foreign in ["", "a1b2", "ferrule:aws-cni/a1b2", "ferrule:a/b/c/d", "ferrule:/b/eth0"] {
            assert_eq!(PodKey::from_alias(foreign), None, "{foreign}");
        }
    }

    #[test]
    fn further_interfaces_are_named_as_amazon_vpc_cni_names_them() {
        let key = PodKey::new("aws-cni", "a1b2", "eth0").expect("a valid key");
        assert_eq!(key.interface(0), key);
        assert_eq!((key.number(), key.interface(2).number()), (0, 2));
        assert_eq!(key.interface(2).to_string(), "aws-cni/a1b2/mNicIf2");
        assert_eq!(PodKey::from_alias(&key.interface(255).alias()), Some(key.interface(255)));
    }

    #[test]
    fn keys_outside_the_specification_are_refused() {
        for (network, id, ifname) in [
            ("", "a", "eth0"),
            ("net", "", "eth0"),
            ("net", "../a", "eth0"),
            ("net", "a", ""),
            ("net", "a", "a/b"),
            ("net", "a", "sixteen-bytes-xx"),
        ] {
            assert!(PodKey::new(network, id, ifname).is_err(), "{network} {id} {ifname}");
        }
        assert!(PodKey::new("net", "a".repeat(300), "eth0").is_err());
    }
}
