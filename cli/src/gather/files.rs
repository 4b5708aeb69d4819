//! Files below `/proc/sys`, `/etc`, `/usr/lib` and `/run`.

use super::chain;
use cli_doctor::{LinkFile, Observed, Unit};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// Reads the sysctls that the checks need. A sysctl that the kernel lacks is absent.
pub(super) fn sysctls<'a>(
    proc: &Path,
    links: impl Iterator<Item = &'a str>,
) -> BTreeMap<String, Observed<String>> {
    let fixed = [
        "net/ipv4/ip_forward",
        "net/ipv4/conf/all/rp_filter",
        "net/ipv6/conf/all/forwarding",
        "net/netfilter/nf_conntrack_count",
        "net/netfilter/nf_conntrack_max",
    ];
    let of_links = links.map(|link| format!("net/ipv4/conf/{link}/rp_filter"));
    let read = |name: String| match fs::read_to_string(proc.join("sys").join(&name)) {
        Ok(value) => Some((name, Ok(value.trim().to_owned()))),
        Err(err) if err.kind() == io::ErrorKind::NotFound => None,
        Err(err) => {
            let why = chain(&format!("cannot read {}/sys/{name}", proc.display()), &err);
            Some((name, Err(why)))
        }
    };
    fixed.into_iter().map(str::to_owned).chain(of_links).filter_map(read).collect()
}

/// Returns the files that set sysctls at boot; for each sysctl the last file counts.
pub(super) fn sysctl_files(root: &Path) -> Vec<(String, String, String)> {
    let mut found = Vec::new();
    let mut files = layered(root, "sysctl.d", "conf");
    // procps reads this file last, and distributions link it into sysctl.d.
    files.extend(Some(root.join("etc/sysctl.conf")).filter(|path| path.exists()));
    for path in files {
        for line in text(&path).lines().filter(|line| !line.trim_start().starts_with(['#', ';'])) {
            let Some((name, value)) = line.split_once('=') else { continue };
            let name = sysctl_name(name.trim().trim_start_matches('-'));
            found.push((name, value.trim().to_owned(), path.display().to_string()));
        }
    }
    found
}

/// Converts `a.b/c` to `a/b.c`, unless a slash comes first.
fn sysctl_name(name: &str) -> String {
    match (name.find('.'), name.find('/')) {
        (Some(dot), Some(slash)) if slash < dot => name.to_owned(),
        (None, _) => name.to_owned(),
        (Some(_), _) => {
            let swap = |c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            name.chars().map(swap).collect()
        }
    }
}

/// Returns the services and timers that are enabled or running.
pub(super) fn units(root: &Path) -> Vec<Unit> {
    let mut enabled = BTreeSet::new();
    for folder in ["etc/systemd/system", "usr/lib/systemd/system", "lib/systemd/system"] {
        for wants in list(&root.join(folder)) {
            if wants.extension().is_some_and(|end| end == "wants" || end == "requires") {
                enabled.extend(list(&wants).iter().filter_map(|path| name(path)));
            }
        }
    }
    let masked = |unit: &String| is_masked(&root.join("etc/systemd/system").join(unit));
    enabled.retain(|unit| !masked(unit));
    // systemd has such a link for each running unit.
    let running = list(&root.join("run/systemd/units"));
    let active: BTreeSet<String> = running
        .iter()
        .filter_map(|path| name(path)?.strip_prefix("invocation:").map(str::to_owned))
        .collect();
    let unit = |name: &String| Unit {
        name: name.clone(),
        enabled: enabled.contains(name),
        active: active.contains(name),
    };
    enabled.union(&active).map(unit).collect()
}

/// Returns the udev rules that start amazon-ec2-net-utils.
pub(super) fn udev_rules(root: &Path) -> Vec<String> {
    let starts = |path: &PathBuf| {
        let text = text(path);
        let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
        let programs = ["policy-routes@", "ec2net", "ec2ifup", "ec2ifscan"];
        lines.into_iter().any(|line| programs.iter().any(|program| line.contains(program)))
    };
    let files = layered(root, "udev/rules.d", "rules");
    files.iter().filter(|path| starts(path)).map(|path| path.display().to_string()).collect()
}

/// Returns the `.link` files in the order of systemd-udevd.
pub(super) fn link_files(root: &Path, veth_prefix: &str) -> Vec<LinkFile> {
    let read = |path: PathBuf| {
        let text = text(&path);
        let mac_policy = settings(&text, "Link", "MACAddressPolicy").pop();
        LinkFile {
            path: path.display().to_string(),
            matches_veth: matches_veth(&text, veth_prefix),
            mac_policy,
        }
    };
    layered(root, "systemd/network", "link").into_iter().map(read).collect()
}

/// Returns true if a `[Match]` section matches a veth with this name prefix. All its conditions must match.
fn matches_veth(text: &str, prefix: &str) -> bool {
    let conditions = section(text, "Match");
    !conditions.is_empty()
        && conditions.iter().all(|(key, value)| {
            let mut any = value.split_whitespace();
            match key.as_str() {
                "OriginalName" => any.any(|glob| match glob.strip_suffix('*') {
                    Some(start) => prefix.starts_with(start),
                    None => false,
                }),
                "Driver" | "Kind" => any.any(|glob| glob == "*" || glob == "veth"),
                // udev's type of a veth is Ethernet.
                "Type" => any.any(|glob| glob == "*" || glob == "ether"),
                _ => false,
            }
        })
}

/// Returns two flags: networkd keeps foreign rules, and networkd keeps foreign routes.
pub(super) fn networkd_keeps(root: &Path) -> (bool, bool) {
    let mut files = vec![root.join("etc/systemd/networkd.conf")];
    files.extend(layered(root, "systemd/networkd.conf.d", "conf"));
    let texts: Vec<String> = files.iter().map(|path| text(path)).collect();
    let keeps = |key: &str| {
        let last = texts.iter().flat_map(|text| settings(text, "Network", key)).next_back();
        last.is_some_and(|value| matches!(value.as_str(), "no" | "false" | "0" | "off"))
    };
    (keeps("ManageForeignRoutingPolicyRules"), keeps("ManageForeignRoutes"))
}

/// Returns the devices that NetworkManager does not manage.
pub(super) fn unmanaged(root: &Path) -> Vec<String> {
    let mut files = vec![root.join("etc/NetworkManager/NetworkManager.conf")];
    files.extend(layered(root, "NetworkManager/conf.d", "conf"));
    let values =
        files.iter().flat_map(|path| settings(&text(path), "keyfile", "unmanaged-devices"));
    let specs = values.flat_map(|value| {
        value.split([',', ';']).map(|spec| spec.trim().to_owned()).collect::<Vec<_>>()
    });
    specs.filter(|spec| !spec.is_empty()).collect()
}

/// Returns the files of a folder in `/etc`, `/run` and `/usr/lib`. For each name the first location counts, and a link
/// to `/dev/null` masks the name.
fn layered(root: &Path, folder: &str, end: &str) -> Vec<PathBuf> {
    let mut by_name: BTreeMap<String, PathBuf> = BTreeMap::new();
    for place in ["etc", "run", "usr/local/lib", "usr/lib", "lib"] {
        for path in list(&root.join(place).join(folder)) {
            if let (Some(file), true) = (name(&path), path.extension().is_some_and(|e| e == end)) {
                by_name.entry(file).or_insert(path);
            }
        }
    }
    by_name.into_values().filter(|path| !is_masked(path)).collect()
}

fn is_masked(path: &Path) -> bool {
    let null = fs::read_link(path).is_ok_and(|to| to == Path::new("/dev/null"));
    null || fs::metadata(path).is_ok_and(|file| file.is_file() && file.len() == 0)
}

/// Returns the values of a key in order. An empty value removes the earlier ones.
fn settings(text: &str, name: &str, key: &str) -> Vec<String> {
    let mut values = Vec::new();
    for (_, value) in section(text, name).into_iter().filter(|(found, _)| found == key) {
        if value.is_empty() {
            values.clear();
        } else {
            values.push(value);
        }
    }
    values
}

/// Returns the keys and values of all sections of this name.
fn section(text: &str, name: &str) -> Vec<(String, String)> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(head) = line.strip_prefix('[') {
            inside = head.strip_suffix(']') == Some(name);
        } else if inside
            && !line.starts_with(['#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            found.push((key.trim().to_owned(), value.trim().to_owned()));
        }
    }
    found
}

/// Returns the entries of a folder; empty if it does not exist.
fn list(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

/// Returns the text of a file; empty if it does not exist.
fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn name(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_str()?.to_owned())
}

#[cfg(test)]
mod tests;
