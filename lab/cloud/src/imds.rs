//! The metadata service of an instance: a tree of texts.

use crate::{
    AttachmentStatus, Cloud, Instance, InstanceState, InstanceType, NetworkInterface,
    describe::{private_dns_name, public_dns_name},
    rng::mix,
    state::View,
};
use config_model::{InstanceId, Span, Time};
use std::collections::BTreeMap;

/// A directory or a file.
#[derive(Debug)]
enum Node {
    Text(String),
    Directory(BTreeMap<String, Node>),
}

/// Versions of the API in the path beside `latest`.
const VERSIONS: [&str; 3] = ["1.0", "2018-09-24", "2021-07-15"];
/// Validity of credentials, and the interval at which they are replaced.
const CREDENTIALS_VALID: Span = Span::seconds(6 * 3600);
const CREDENTIALS_ROTATED_MS: u64 = 3600 * 1000;

impl Cloud {
    /// Answer of IMDS to an instance; `None` is 404. The path is the URL's, such as `/latest/meta-data/mac`. The
    /// HTTP layer handles the tokens.
    ///
    /// Interfaces, addresses and tags are as they were [`crate::Timing::imds_lag`] ago. They are never older than
    /// the last boot, so a new instance gets its own data.
    pub fn imds(&mut self, now: Time, instance: &InstanceId, path: &str) -> Option<String> {
        self.advance(now);
        let current = self.state.instances.get(instance)?;
        if matches!(current.state, InstanceState::Stopped | InstanceState::Terminated) {
            return None;
        }
        let lag = self.imds_lag().min(self.now.since(current.boot_time));
        let past = self.lagged(lag);
        let shown = past.instances.get(instance).unwrap_or(current);
        let path = path.trim_start_matches('/');
        let Some((version, rest)) =
            path.split_once('/').or((!path.is_empty()).then_some((path, "")))
        else {
            return Some(format!("{}\nlatest", VERSIONS.join("\n")));
        };
        if version != "latest" && !VERSIONS.contains(&version) {
            return None;
        }
        Node::directory([
            ("dynamic", self.dynamic(shown, past)),
            ("meta-data", self.meta_data(shown, past)),
        ])
        .read(rest)
    }

    fn meta_data(&self, instance: &Instance, state: View<'_>) -> Node {
        let region = self.spec.region.as_str();
        let enis: Vec<&NetworkInterface> = state
            .enis_of(&instance.id)
            .into_iter()
            .map(AsRef::as_ref)
            .filter(|eni| {
                eni.attachment.as_ref().is_some_and(|a| a.status != AttachmentStatus::Attaching)
            })
            .collect();
        let kind = instance.limits();
        let system = if kind.and_then(|kind| kind.hypervisor.as_str()) == Some("xen") {
            "xen"
        } else {
            "nitro"
        };
        let zone_id =
            state.subnets.get(&instance.subnet_id).map(|s| s.availability_zone_id.as_str());
        let mut root = BTreeMap::from([
            file("ami-id", &instance.image_id),
            file("ami-launch-index", "0"),
            file("instance-action", "none"),
            file("instance-id", instance.id.as_str()),
            file("instance-life-cycle", "on-demand"),
            file("instance-type", &instance.instance_type),
            file("profile", "default-hvm"),
            file("reservation-id", &instance.reservation_id),
            file("system", system),
            folder(
                "placement",
                [
                    file("availability-zone", &instance.availability_zone),
                    file("availability-zone-id", zone_id.unwrap_or_default()),
                    file("region", region),
                ],
            ),
            folder("services", [file("domain", "amazonaws.com"), file("partition", "aws")]),
        ]);
        if let Some(primary) = enis.first() {
            if let Some(address) = primary.primary_address() {
                root.extend([
                    file("hostname", private_dns_name(address, region)),
                    file("local-hostname", private_dns_name(address, region)),
                    file("local-ipv4", address),
                ]);
            }
            root.extend(primary.ipv6_addresses.first().map(|address| file("ipv6", address)));
            root.extend([
                file("mac", primary.mac),
                file("security-groups", lines(primary.groups.iter().map(|group| &group.name))),
            ]);
            if let Some(public) = primary.public_ip {
                root.extend([
                    file("public-hostname", public_dns_name(public, region)),
                    file("public-ipv4", public),
                ]);
            }
        }
        let macs = enis.iter().map(|eni| (eni.mac.to_string(), self.interface(eni, kind, state)));
        root.extend([folder(
            "network",
            [folder("interfaces", [("macs".to_owned(), Node::Directory(macs.collect()))])],
        )]);
        if let Some(role) = &instance.role {
            root.extend([folder("iam", self.iam_files(instance, role))]);
        }
        if instance.metadata_tags {
            let tags = instance.tags.iter().map(|(key, value)| file(key, value));
            root.extend([folder("tags", [folder("instance", tags)])]);
        }
        Node::Directory(root)
    }

    fn interface(
        &self,
        eni: &NetworkInterface,
        kind: Option<&InstanceType>,
        state: View<'_>,
    ) -> Node {
        let region = self.spec.region.as_str();
        let subnet = state.subnets.get(&eni.subnet_id);
        let vpc = &state.vpc;
        let mut files = BTreeMap::from([
            file("interface-id", eni.id.as_str()),
            file("mac", eni.mac),
            file("owner-id", &eni.owner_id),
            file("security-group-ids", lines(eni.groups.iter().map(|group| &group.id))),
            file("security-groups", lines(eni.groups.iter().map(|group| &group.name))),
            file("subnet-id", eni.subnet_id.as_str()),
            file("subnet-ipv4-cidr-block", lines(subnet.map(|subnet| subnet.cidr))),
            file("vpc-id", eni.vpc_id.as_str()),
            file("vpc-ipv4-cidr-block", lines(vpc.cidrs.first())),
            file("vpc-ipv4-cidr-blocks", lines(&vpc.cidrs)),
        ]);
        if let Some(attachment) = &eni.attachment {
            files.extend([file("device-number", attachment.device_index.0)]);
            if kind.is_some_and(|kind| kind.cards.len() > 1) {
                files.extend([file("network-card", attachment.network_card_index.0)]);
            }
        }
        // Values that an ENI, its subnet or its VPC lacks have no path.
        let optional = [
            ("local-ipv4s", lines(eni.private_addresses.iter().map(|a| a.address))),
            ("ipv6s", lines(&eni.ipv6_addresses)),
            ("ipv6-prefix", lines(&eni.ipv6_prefixes)),
            ("subnet-ipv6-cidr-blocks", lines(subnet.and_then(|subnet| subnet.ipv6_cidr))),
            ("vpc-ipv6-cidr-blocks", lines(&vpc.ipv6_cidrs)),
        ];
        files.extend(
            optional
                .into_iter()
                .filter(|(_, text)| !text.is_empty())
                .map(|(name, text)| file(name, text)),
        );
        if let Some(address) = eni.primary_address() {
            files.extend([file("local-hostname", private_dns_name(address, region))]);
        }
        if !eni.ipv4_prefixes.is_empty() {
            files.extend([file("ipv4-prefix", lines(&eni.ipv4_prefixes))]);
        }
        if let Some(public) = eni.public_ip {
            files.extend([
                file("public-hostname", public_dns_name(public, region)),
                file("public-ipv4s", public),
                folder(
                    "ipv4-associations",
                    [file(&public.to_string(), lines(eni.primary_address()))],
                ),
            ]);
        }
        Node::Directory(files)
    }

    fn iam_files(&self, instance: &Instance, role: &str) -> [(String, Node); 2] {
        let account = &self.spec.account;
        let issued = Time(self.now.0 - self.now.0 % CREDENTIALS_ROTATED_MS);
        let updated = self.epoch().to_the_second(issued);
        let expires = self.epoch().to_the_second(issued + CREDENTIALS_VALID);
        let info = object(&[
            ("Code", "Success"),
            ("LastUpdated", &updated),
            ("InstanceProfileArn", &format!("arn:aws:iam::{account}:instance-profile/{role}")),
            ("InstanceProfileId", &format!("AIPA{:016X}", mix(self.seed ^ hash(role)))),
        ]);
        let key = self.access_key_of(&instance.id);
        let credentials = object(&[
            ("Code", "Success"),
            ("LastUpdated", &updated),
            ("Type", "AWS-HMAC"),
            ("AccessKeyId", &key),
            ("SecretAccessKey", &format!("lab{:032x}", hash(&key))),
            ("Token", &format!("lab-session-{:016x}-{}", hash(&key), issued.0)),
            ("Expiration", &expires),
        ]);
        [file("info", info), folder("security-credentials", [file(role, credentials)])]
    }

    /// The access key id of an instance's role session.
    pub(crate) fn access_key_of(&self, instance: &InstanceId) -> String {
        format!("ASIA{:016X}", mix(self.seed ^ hash(instance.as_str())))
    }

    fn dynamic(&self, instance: &Instance, state: View<'_>) -> Node {
        let enis = state.enis_of(&instance.id);
        let address = enis.first().and_then(|eni| eni.primary_address()).map(|a| a.to_string());
        let kind = instance.limits();
        let text = |text: &str| format!("\"{}\"", escape(text));
        let nothing = || "null".to_owned();
        let fields = [
            ("accountId", text(&self.spec.account)),
            ("architecture", text(kind.map_or("x86_64", |kind| kind.architecture))),
            ("availabilityZone", text(&instance.availability_zone)),
            ("billingProducts", nothing()),
            ("devpayProductCodes", nothing()),
            ("marketplaceProductCodes", nothing()),
            ("imageId", text(&instance.image_id)),
            ("instanceId", text(instance.id.as_str())),
            ("instanceType", text(&instance.instance_type)),
            ("kernelId", nothing()),
            ("pendingTime", text(&self.epoch().to_the_second(instance.launch_time))),
            ("privateIp", address.map_or_else(nothing, |address| text(&address))),
            ("ramdiskId", nothing()),
            ("region", text(&self.spec.region)),
            ("version", text("2017-09-30")),
        ];
        let document = fields.map(|(name, value)| format!("  \"{name}\" : {value}")).join(",\n");
        let document = format!("{{\n{document}\n}}");
        Node::directory([(
            "instance-identity",
            Node::directory([("document", Node::Text(document))]),
        )])
    }
}

impl Node {
    fn directory<const N: usize>(nodes: [(&str, Self); N]) -> Self {
        Self::Directory(nodes.into_iter().map(|(name, node)| (name.to_owned(), node)).collect())
    }

    /// Content of a path. A directory is listed with or without the slash at its end; a file has none.
    fn read(&self, path: &str) -> Option<String> {
        match self {
            Self::Directory(nodes) if path.is_empty() => {
                Some(lines(nodes.iter().map(|(name, node)| match node {
                    Self::Text(_) => name.clone(),
                    Self::Directory(_) => format!("{name}/"),
                })))
            }
            Self::Directory(nodes) => {
                let (first, rest) = path.split_once('/').unwrap_or((path, ""));
                let node = nodes.get(first)?;
                let slash_after_file = matches!(node, Self::Text(_)) && path.len() > first.len();
                if slash_after_file { None } else { node.read(rest) }
            }
            Self::Text(text) => Some(text.clone()),
        }
    }
}

fn file(name: &str, text: impl ToString) -> (String, Node) {
    (name.to_owned(), Node::Text(text.to_string()))
}

fn folder(name: &str, nodes: impl IntoIterator<Item = (String, Node)>) -> (String, Node) {
    (name.to_owned(), Node::Directory(nodes.into_iter().collect()))
}

fn lines<T: ToString>(items: impl IntoIterator<Item = T>) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join("\n")
}

/// A JSON object of strings, laid out as IMDS does.
fn object(fields: &[(&str, &str)]) -> String {
    let fields: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("  \"{name}\" : \"{}\"", escape(value)))
        .collect();
    format!("{{\n{}\n}}", fields.join(",\n"))
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
