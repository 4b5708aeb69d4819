//! The plain parse: the same pages through `serde_json` into derived types that own the fields which policy
//! reads. A program without a custom reader would do the same.

#![expect(dead_code, reason = "what is measured is that fields are read")]

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, de::DeserializeOwned};
use std::{collections::BTreeMap, hint::black_box, net::IpAddr};

/// Parses a page and drops the list. Returns the number of items.
pub(super) fn read(kind: u8, page: &[u8]) -> Result<usize> {
    match kind {
        0 => list::<Namespace>(page),
        1 => list::<Pod>(page),
        2 => list::<NetworkPolicy>(page),
        _ => bail!("a page of no kind"),
    }
}

fn list<T: DeserializeOwned>(page: &[u8]) -> Result<usize> {
    let list: List<T> = serde_json::from_slice(page).context("read a page by derive")?;
    Ok(black_box(&list).items.len())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct List<T> {
    api_version: String,
    kind: String,
    metadata: ListMeta,
    items: Vec<T>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    r#continue: String,
    resource_version: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: String,
    namespace: String,
    uid: String,
    labels: BTreeMap<String, String>,
    creation_timestamp: String,
    generation: i64,
}

#[derive(Deserialize)]
struct Namespace {
    metadata: NamespaceMeta,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NamespaceMeta {
    name: String,
    uid: String,
    labels: BTreeMap<String, String>,
    annotations: Annotations,
    creation_timestamp: String,
    generation: i64,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "networkpolicy.antrea.io/enable-logging")]
    logging: Option<String>,
}

#[derive(Deserialize)]
struct Pod {
    metadata: Meta,
    #[serde(default)]
    spec: PodSpec,
    #[serde(default)]
    status: PodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    node_name: String,
    host_network: bool,
    service_account_name: String,
    containers: Vec<Container>,
    init_containers: Vec<Container>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Container {
    #[serde(default)]
    ports: Vec<ContainerPort>,
    restart_policy: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerPort {
    name: Option<String>,
    protocol: Option<Protocol>,
    container_port: u16,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Protocol {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct PodStatus {
    phase: Phase,
    #[serde(rename = "podIPs")]
    addresses: Vec<PodAddress>,
}

#[derive(Default, Deserialize)]
enum Phase {
    Succeeded,
    Failed,
    #[default]
    #[serde(other)]
    Live,
}

#[derive(Deserialize)]
struct PodAddress {
    ip: IpAddr,
}

#[derive(Deserialize)]
struct NetworkPolicy {
    metadata: Meta,
    spec: PolicySpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PolicySpec {
    #[serde(default)]
    pod_selector: Selector,
    #[serde(default)]
    policy_types: Vec<PolicyType>,
    #[serde(default)]
    ingress: Vec<Rule>,
    #[serde(default)]
    egress: Vec<Rule>,
}

#[derive(Deserialize)]
enum PolicyType {
    Ingress,
    Egress,
}

#[derive(Deserialize)]
struct Rule {
    #[serde(default, alias = "from", alias = "to")]
    peers: Vec<Peer>,
    #[serde(default)]
    ports: Vec<Port>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Peer {
    namespace_selector: Option<Selector>,
    pod_selector: Option<Selector>,
    ip_block: Option<Block>,
}

#[derive(Deserialize)]
struct Block {
    cidr: String,
    #[serde(default)]
    except: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Port {
    protocol: Option<Protocol>,
    port: Option<PortName>,
    end_port: Option<u16>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum PortName {
    Number(u16),
    Name(String),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Expression>,
}

#[derive(Deserialize)]
struct Expression {
    key: String,
    operator: Operator,
    #[serde(default)]
    values: Vec<String>,
}

#[derive(Deserialize)]
enum Operator {
    In,
    NotIn,
    Exists,
    DoesNotExist,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{ObjectForm, Scale, Size, pages};
    use policy_objects::page::{self, PeerView, PolicyItem};

    fn page_of(kind: u8) -> Vec<u8> {
        let mut all = Vec::new();
        pages(Size::SmallNamespaces, ObjectForm::Full, Scale::Small, &mut all).expect("pages");
        let mut rest = all.as_slice();
        while let [of, a, b, c, d, e, f, g, h, behind @ ..] = rest {
            let length = u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]);
            let (page, behind) = behind.split_at(usize::try_from(length).expect("a length"));
            if *of == kind {
                return page.to_vec();
            }
            rest = behind;
        }
        panic!("no page of kind {kind}");
    }

    #[test]
    fn the_plain_parser_owns_the_pod_fields_that_the_reader_borrows() {
        let page = page_of(1);
        let list: List<Pod> = serde_json::from_slice(&page).expect("a list");
        let mut items = list.items.iter();
        page::pods(&page, |lent| {
            let (lent, Pod { metadata, spec, status }) =
                (lent.expect("a pod"), items.next().expect("as many"));
            let labels = lent.meta.labels.iter().map(|(key, value)| (&**key, &**value));
            assert!(labels.eq(metadata.labels.iter().map(|(key, value)| (&**key, &**value))));
            assert_eq!((&*metadata.name, &*metadata.uid), (&*lent.meta.name, &*lent.meta.uid));
            assert_eq!(metadata.creation_timestamp, lent.meta.created);
            assert_eq!((&*spec.node_name, spec.host_network), (&*lent.node, lent.host_network));
            assert!(status.addresses.iter().map(|one| one.ip).eq(lent.addresses));
        })
        .expect("a page");
        assert!(items.next().is_none());
    }

    #[test]
    fn the_plain_parser_owns_the_peers_that_the_reader_borrows() {
        let page = page_of(2);
        let list: List<NetworkPolicy> = serde_json::from_slice(&page).expect("a list");
        let rules = list.items.iter().flat_map(|policy| &policy.spec.ingress);
        let selectors = rules.flat_map(|rule| &rule.peers).flat_map(|peer| &peer.pod_selector);
        let owned = selectors.flat_map(|selector| selector.match_labels.keys().cloned());
        let mut lent = Vec::new();
        page::network_policies(&page, |item| {
            let PolicyItem::Borrowed(policy) = item.expect("a policy") else { panic!("it is odd") };
            for peer in policy.ingress.iter().flatten().flat_map(|rule| &rule.peers) {
                let PeerView::Pods { pods: Some(pods), .. } = peer else { continue };
                lent.extend(pods.requirements().iter().map(|one| one.key.to_owned()));
            }
        })
        .expect("a page");
        assert!(lent.len() > 300 && owned.eq(lent));
    }
}
