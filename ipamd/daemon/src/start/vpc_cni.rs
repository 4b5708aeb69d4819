//! The checkpoint of amazon-vpc-cni (`vpc-cni-ipam/1`), for nodes that are taken over. It is never written, so
//! that a rollback stays possible.

use config_model::{PodKey, PodName, registry};
use ipamd_core::{Notice, Severity, Topic};
use serde::Deserialize;
use serde_json::Value;
use std::{
    fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
};

/// The only version that ever existed.
const VERSION: &str = "vpc-cni-ipam/1";
/// The network of entries that predate the file and had sandboxes only. Their DELs name network and interface
/// like all others.
const MIGRATED: &str = "_migrated-from-cri";
const FIRST_INTERFACE: &str = "eth0";

/// An address of a pod's interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocation {
    pub(super) key: PodKey,
    /// `None` for an entry that predates the file.
    pub(super) pod: Option<PodName>,
    pub(super) address: IpAddr,
}

/// Reads the file of network card 0 and those of other cards. A missing file is normal; every other unusable file
/// becomes a notice.
pub(super) fn read(store: &Path) -> (Vec<Allocation>, Vec<Notice>) {
    let (mut allocations, mut notices) = (Vec::new(), Vec::new());
    for path in files(store) {
        let told = |cause: String| Notice {
            severity: Severity::Warning,
            topic: Topic::Restored,
            object: path.display().to_string(),
            cause,
            next_step: "no pod that it may list runs on this node; delete the file after \
                        amazon-vpc-cni is removed"
                .to_owned(),
            pod: None,
        };
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
            Err(e) => {
                notices.push(told(format!("cannot read the checkpoint of amazon-vpc-cni: {e}")));
                continue;
            }
        };
        match parse(&bytes) {
            Ok((found, unusable)) => {
                if let Some((entry, why)) = unusable.first() {
                    let (bad, all) = (unusable.len(), found.len() + unusable.len());
                    notices.push(told(format!(
                        "cannot use {bad} of {all} entries of the amazon-vpc-cni checkpoint; \
                         entry {entry}: {why}"
                    )));
                }
                allocations.extend(found);
            }
            Err(why) => {
                notices.push(told(format!("cannot use the checkpoint of amazon-vpc-cni: {why}")));
            }
        }
    }
    (allocations, notices)
}

/// `ipam.json`, and `ipam-nic-<card>.json` in its folder, by card.
fn files(store: &Path) -> Vec<PathBuf> {
    let folder = store.parent().unwrap_or_else(|| Path::new("/"));
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut cards: Vec<(u16, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let card = name.strip_prefix("ipam-nic-")?.strip_suffix(".json")?.parse().ok()?;
            Some((card, entry.path()))
        })
        .collect();
    cards.sort();
    std::iter::once(store.to_owned()).chain(cards.into_iter().map(|(_, path)| path)).collect()
}

#[derive(Deserialize)]
struct File {
    version: String,
    #[serde(default)]
    allocations: Option<Vec<Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    network_name: String,
    #[serde(rename = "containerID")]
    container_id: String,
    if_name: String,
    ipv4: Option<Ipv4Addr>,
    ipv6: Option<Ipv6Addr>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Default, Deserialize)]
struct Metadata {
    #[serde(rename = "k8sPodNamespace", default)]
    namespace: String,
    #[serde(rename = "k8sPodName", default)]
    name: String,
}

/// The index of an entry and its error.
type Unusable = (usize, String);

fn parse(bytes: &[u8]) -> Result<(Vec<Allocation>, Vec<Unusable>), String> {
    let file: File = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
    if file.version != VERSION {
        return Err(format!("its version is {:?} instead of {VERSION:?}", file.version));
    }
    let (mut found, mut unusable) = (Vec::new(), Vec::new());
    for (at, entry) in file.allocations.unwrap_or_default().into_iter().enumerate() {
        match allocation(entry) {
            Ok(allocation) => found.push(allocation),
            Err(why) => unusable.push((at + 1, why)),
        }
    }
    Ok((found, unusable))
}

fn allocation(entry: Value) -> Result<Allocation, String> {
    let entry: Entry = serde_json::from_value(entry).map_err(|e| e.to_string())?;
    let address = match (entry.ipv4, entry.ipv6) {
        (Some(v4), None) => IpAddr::V4(v4),
        (None, Some(v6)) => IpAddr::V6(v6),
        (None, None) => return Err("it has no address".to_owned()),
        (Some(_), Some(_)) => return Err("it has two addresses".to_owned()),
    };
    let key = match entry.network_name.as_str() {
        MIGRATED => PodKey::new(registry::CNI_NETWORK, entry.container_id, FIRST_INTERFACE),
        network => PodKey::new(network, entry.container_id, entry.if_name),
    };
    let key = key.map_err(|invalid| invalid.to_string())?;
    let Metadata { namespace, name } = entry.metadata;
    let pod = (!namespace.is_empty() && !name.is_empty()).then_some(PodName { namespace, name });
    Ok(Allocation { key, pod, address })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    const FILE: &str = r#"{"version":"vpc-cni-ipam/1","allocations":[
        {"networkName":"aws-cni","containerID":"c1","ifName":"eth0","ipv4":"10.0.1.23",
         "allocationTimestamp":1755700000000000000,
         "metadata":{"k8sPodNamespace":"default","k8sPodName":"web-0","interfacesCount":1}},
        {"networkName":"_migrated-from-cri","containerID":"c2","ifName":"unknown",
         "ipv4":"10.0.1.24","allocationTimestamp":1,"metadata":{}},
        {"networkName":"aws-cni","containerID":"c3","ifName":"eth0","ipv6":"2001:db8::1:2",
         "allocationTimestamp":1,
         "metadata":{"k8sPodNamespace":"default","k8sPodName":"web-1"}}]}"#;

    #[test]
    fn each_entry_is_an_allocation() {
        let (found, unusable) = parse(FILE.as_bytes()).unwrap();
        assert_eq!(unusable, []);
        let addresses: Vec<String> = found.iter().map(|one| one.address.to_string()).collect();
        assert_eq!(addresses, ["10.0.1.23", "10.0.1.24", "2001:db8::1:2"]);
        assert_eq!(found[0].key, PodKey::new("aws-cni", "c1", "eth0").unwrap());
        assert_eq!(found[1].key, PodKey::new("aws-cni", "c2", "eth0").unwrap());
        let name = |n: usize| found[n].pod.as_ref().map(ToString::to_string);
        assert_eq!([name(0), name(1)], [Some("default/web-0".to_owned()), None]);
    }

    #[test]
    fn a_bad_entry_is_reported_and_the_rest_counts() {
        for bad in [
            r#"{"networkName":"aws-cni","containerID":"../c","ifName":"eth0","ipv4":"10.0.0.1"}"#,
            r#"{"networkName":"aws-cni","containerID":"c9","ifName":"eth0"}"#,
            r#"{"networkName":"aws-cni","containerID":"c9","ifName":"eth0","ipv4":"10.0.0.256"}"#,
            r#"{"networkName":"aws-cni","ifName":"eth0","ipv4":"10.0.0.1"}"#,
            "17",
        ] {
            let file = FILE.replacen("[\n", &format!("[{bad},"), 1);
            let (found, unusable) = parse(file.as_bytes()).unwrap();
            assert_eq!((found.len(), unusable.len(), unusable[0].0), (3, 1, 1), "{bad}");
        }
    }

    #[test]
    fn files_of_all_cards_are_read_and_others_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, id: &str, address: &str| {
            let text = format!(
                r#"{{"version":"vpc-cni-ipam/1","allocations":[{{"networkName":"aws-cni",
                "containerID":"{id}","ifName":"eth0","ipv4":"{address}","metadata":{{}}}}]}}"#
            );
            fs::write(folder.path().join(name), text).unwrap();
        };
        file("ipam-nic-10.json", "c", "10.0.0.3");
        file("ipam.json", "a", "10.0.0.1");
        file("ipam-nic-2.json", "b", "10.0.0.2");
        file("ipam.json.tmp", "d", "10.0.0.4");
        let (found, notices) = read(&folder.path().join("ipam.json"));
        let ids: Vec<&str> = found.iter().map(|one| one.key.container_id.as_str()).collect();
        assert_eq!((ids, notices.len()), (vec!["a", "b", "c"], 0));
    }

    #[test]
    fn a_missing_file_is_normal_and_an_unknown_one_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("ipam.json");
        assert_eq!(read(&store), (Vec::new(), Vec::new()));
        for (content, why) in [
            (r#"{"version":"vpc-cni-ipam/2","allocations":[]}"#, "vpc-cni-ipam/2"),
            ("{\"version\":\"vpc-cni", "EOF"),
            ("", "EOF"),
        ] {
            fs::write(&store, content).unwrap();
            let (found, notices) = read(&store);
            assert_eq!(found, []);
            let [notice] = notices.as_slice() else { panic!("{notices:?}") };
            assert!(notice.cause.contains(why), "{notice:?}");
            assert_eq!(fs::read_to_string(&store).unwrap(), content, "the file is never written");
        }
        fs::write(&store, r#"{"version":"vpc-cni-ipam/1","allocations":null}"#).unwrap();
        assert_eq!(read(&store), (Vec::new(), Vec::new()));
    }
}
