//! Values as Go's standard library reads them, since that is what operators' manifests were
//! written for. Each function answers with what it wanted when the text is something else.

use crate::values::{Bind, LogLevel, LogTo, NatBackend, RandomizeSnat};
use config_model::EnforcingMode;
use config_model::Mark;
use ipnet::Ipv4Net;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
};

/// Expected form of a value, with an article.
pub(crate) type Expected = &'static str;

/// `strconv.ParseBool`.
pub(crate) fn boolean(text: &str) -> Result<bool, Expected> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Ok(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Ok(false),
        _ => Err("a boolean (1 t T TRUE true True 0 f F FALSE false False)"),
    }
}

/// `strconv.Atoi`: base 10, an optional sign, nothing else.
pub(crate) fn integer(text: &str) -> Result<i64, Expected> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err("an integer");
    }
    text.parse().map_err(|_| "an integer of 64 bits")
}

/// An integer that is not negative.
pub(crate) fn count(text: &str) -> Result<u32, Expected> {
    u32::try_from(integer(text)?).map_err(|_| "an integer, 0 or more")
}

/// An integer in a range.
pub(crate) fn within(text: &str, least: i64, most: i64, wanted: Expected) -> Result<u32, Expected> {
    let number = integer(text)?;
    let number = (least..=most).contains(&number).then_some(number).ok_or(wanted)?;
    u32::try_from(number).map_err(|_| wanted)
}

/// `strconv.ParseInt` with base 0, then 1 to 2³²−1.
pub(crate) fn mark(text: &str) -> Result<Mark, Expected> {
    let wanted = "an integer from 1 to 4294967295, decimal or with 0x, 0o or 0b before it";
    let unsigned = text.strip_prefix('+').unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let (radix, digits, prefixed) = match (lower.get(..2), lower.strip_prefix('0')) {
        (Some("0x"), _) => (16, &lower[2..], true),
        (Some("0o"), _) => (8, &lower[2..], true),
        (Some("0b"), _) => (2, &lower[2..], true),
        (_, Some(rest)) if !rest.is_empty() => (8, rest, true),
        _ => (10, lower.as_str(), false),
    };
    // Go allows an underscore between digits, and between the prefix and the first of them.
    let misplaced = digits.ends_with('_')
        || digits.contains("__")
        || (digits.starts_with('_') && !prefixed)
        || digits.starts_with(['+', '-']);
    if misplaced {
        return Err(wanted);
    }
    let value = u32::from_str_radix(&digits.replace('_', ""), radix).map_err(|_| wanted)?;
    if value == 0 { Err(wanted) } else { Ok(Mark { value, mask: value }) }
}

pub(crate) fn veth_prefix(text: &str) -> Result<String, Expected> {
    let wanted = "1 to 4 characters that an interface name may have, and not eth, lo or vlan";
    let fits = (1..=4).contains(&text.len())
        && !["eth", "lo", "vlan"].contains(&text)
        && text.chars().all(|c| c.is_ascii_graphic() && !"/:%".contains(c));
    if fits { Ok(text.to_owned()) } else { Err(wanted) }
}

pub(crate) fn log_level(text: &str) -> Result<LogLevel, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "debug" => Ok(LogLevel::Debug),
        "info" => Ok(LogLevel::Info),
        "warn" => Ok(LogLevel::Warn),
        // The highest level here is error: a daemon that stops logs the reason as an error.
        "error" | "fatal" => Ok(LogLevel::Error),
        _ => Err("debug, info, warn, error or fatal"),
    }
}

pub(crate) fn log_to(text: &str) -> Result<LogTo, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "stdout" => Ok(LogTo::Stdout),
        "stderr" => Ok(LogTo::Stderr),
        _ => path(text).map(LogTo::File),
    }
}

/// Destination of the plugin's log. Its standard output belongs to the runtime.
pub(crate) fn plugin_log(text: &str) -> Result<String, Expected> {
    if text == "stderr" || text.starts_with('/') {
        Ok(text.to_owned())
    } else {
        Err("stderr or an absolute path")
    }
}

pub(crate) fn path(text: &str) -> Result<PathBuf, Expected> {
    if text.starts_with('/') { Ok(PathBuf::from(text)) } else { Err("an absolute path") }
}

/// A folder that stands for `/proc/sys/net`; its parent then stands for `/proc/sys`.
pub(crate) fn net_folder(text: &str) -> Result<PathBuf, Expected> {
    let found = path(text)?;
    if found.ends_with("net") { Ok(found) } else { Err("an absolute path that ends in /net") }
}

pub(crate) fn bind(text: &str) -> Result<Bind, Expected> {
    if let Some(socket) = text.strip_prefix("unix:") {
        return path(socket).map(Bind::Unix);
    }
    let wanted = "an address with a port, or unix: and an absolute path";
    let (host, port) = text.rsplit_once(':').ok_or(wanted)?;
    let host: IpAddr = match host {
        "" => Ipv6Addr::UNSPECIFIED.into(),
        "localhost" => Ipv4Addr::LOCALHOST.into(),
        _ => host.trim_matches(['[', ']']).parse().map_err(|_| wanted)?,
    };
    Ok(Bind::Tcp(SocketAddr::new(host, port.parse().map_err(|_| wanted)?)))
}

/// An unknown choice is `prng`, as in amazon-vpc-cni.
pub(crate) fn randomize(text: &str) -> Result<RandomizeSnat, Expected> {
    match text {
        "prng" => Ok(RandomizeSnat::Prng),
        "hashrandom" => Ok(RandomizeSnat::Hash),
        "none" => Ok(RandomizeSnat::None),
        _ => Err("prng, hashrandom or none"),
    }
}

pub(crate) fn nat_backend(text: &str) -> Result<Option<NatBackend>, Expected> {
    match text {
        "auto" => Ok(None),
        "iptables-legacy" => Ok(Some(NatBackend::IptablesLegacy)),
        "iptables-nft" => Ok(Some(NatBackend::IptablesNft)),
        "nftables" => Ok(Some(NatBackend::Nftables)),
        _ => Err("auto, iptables-legacy, iptables-nft or nftables"),
    }
}

pub(crate) fn policy_mode(text: &str) -> Result<Option<EnforcingMode>, Expected> {
    match text.to_ascii_lowercase().as_str() {
        "none" => Ok(None),
        mode => mode.parse().map(Some).map_err(|_| "none, standard or strict"),
    }
}

pub(crate) fn choice<T: Copy>(
    text: &str,
    words: &[(&str, T)],
    wanted: Expected,
) -> Result<T, Expected> {
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or(wanted)
}

/// A DNS label: it becomes part of a Lease's name and the value of a tag.
pub(crate) fn label(text: &str) -> Result<String, Expected> {
    let wanted = "1 to 63 of a-z, 0-9 and -, with a letter or digit at both ends";
    let inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let fits = (1..=63).contains(&text.len())
        && text.chars().all(inner)
        && !text.starts_with('-')
        && !text.ends_with('-');
    if fits { Ok(text.to_owned()) } else { Err(wanted) }
}

/// A namespace and the name of an object in it, with a slash between.
pub(crate) fn namespaced(text: &str) -> Result<(String, String), Expected> {
    let wanted =
        "a namespace and a name with a slash between, such as kube-system/ferrule-controller";
    let (namespace, name) = text.split_once('/').ok_or(wanted)?;
    Ok((label(namespace).map_err(|_| wanted)?, label(name).map_err(|_| wanted)?))
}

/// The key of a taint as Kubernetes has it: a name, with a DNS name and a slash before it if
/// wanted.
pub(crate) fn taint_key(text: &str) -> Result<String, Expected> {
    let wanted = "the key of a taint, such as ferrule.io/not-ready";
    let (domain, name) = match text.split_once('/') {
        Some((domain, name)) => (Some(domain), name),
        None => (None, text),
    };
    let ends = |text: &str| {
        let alphanumeric = |c: Option<char>| c.is_some_and(|c| c.is_ascii_alphanumeric());
        alphanumeric(text.chars().next()) && alphanumeric(text.chars().last())
    };
    let name_fits = name.len() <= 63
        && ends(name)
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    let domain_fits = domain.is_none_or(|domain| {
        domain.len() <= 253 && domain.split('.').all(|part| label(part).is_ok())
    });
    if name_fits && domain_fits { Ok(text.to_owned()) } else { Err(wanted) }
}

/// Networks between commas; what is no IPv4 network is left out and noted by its place.
pub(crate) fn cidrs(text: &str, notes: &mut Vec<String>) -> Vec<Ipv4Net> {
    let mut found = Vec::new();
    let entries = text.split(',').map(str::trim).enumerate().filter(|(_, entry)| !entry.is_empty());
    for (at, entry) in entries {
        match entry.parse::<Ipv4Net>() {
            Ok(net) => found.push(net.trunc()),
            Err(_) => notes.push(format!("entry {} is no IPv4 network and is left out", at + 1)),
        }
    }
    found
}

/// Tags as a JSON object of strings; keys that EC2 or Kubernetes own are left out and noted.
pub(crate) fn tags(
    text: &str,
    notes: &mut Vec<String>,
) -> Result<BTreeMap<String, String>, Expected> {
    let wanted = "a JSON object of strings";
    let read: Option<BTreeMap<String, String>> = serde_json::from_str(text).map_err(|_| wanted)?;
    let mut tags = BTreeMap::new();
    for (at, (key, value)) in read.unwrap_or_default().into_iter().enumerate() {
        if key.contains("k8s.amazonaws.com") {
            notes.push(format!("tag {} has a reserved key (k8s.amazonaws.com), left out", at + 1));
        } else if key.to_ascii_lowercase().starts_with("aws:") {
            notes.push(format!("tag {} has a key that EC2 reserves (aws:), left out", at + 1));
        } else {
            tags.insert(key, value);
        }
    }
    Ok(tags)
}

/// Plugins' configurations as a JSON list of objects, each with its `type`.
pub(crate) fn plugins(text: &str) -> Result<Vec<Value>, Expected> {
    let wanted =
        "a JSON list of plugin configurations, each an object with a type such as \"tuning\"";
    let plugins: Vec<Value> = serde_json::from_str(text).map_err(|_| wanted)?;
    let named = |plugin: &Value| {
        // It becomes a program's name.
        plugin["type"].as_str().is_some_and(|name| !name.is_empty() && !name.contains('/'))
    };
    if !plugins.iter().all(named) {
        return Err(wanted);
    }
    if plugins.iter().any(|plugin| plugin["type"] == "ferrule-cni" || plugin["type"] == "aws-cni") {
        return Err(
            "further plugins alone: ferrule-cni comes first by itself, and aws-cni would give \
                    pods a second address; leave both out",
        );
    }
    Ok(plugins)
}

pub(crate) fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}
