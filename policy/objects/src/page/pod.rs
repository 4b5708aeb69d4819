//! Pods.

use super::meta::{MetaView, annotation, meta, owned};
use super::scan::{Once, Scan};
use crate::{ContainerPort, MIRROR, Meta, Phase, Pod, Protocol};
use std::borrow::Cow;
use std::net::IpAddr;

/// A pod, borrowed by a page; the fields are [`Pod`]'s.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodView<'a> {
    pub meta: MetaView<'a>,
    /// The node that it is bound to; empty as long as there is none.
    pub node: Cow<'a, str>,
    /// True if the pod uses its node's network.
    pub host_network: bool,
    pub service_account: Cow<'a, str>,
    pub phase: Phase,
    pub addresses: Vec<IpAddr>,
    pub ports: Vec<PortView<'a>>,
    /// Its annotation `kubernetes.io/config.mirror`.
    pub mirror: Option<Cow<'a, str>>,
}

/// A named port, borrowed by a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortView<'a> {
    pub name: Cow<'a, str>,
    pub protocol: Protocol,
    pub port: u16,
}

/// Reads a pod.
pub(super) fn pod<'p>(scan: &mut Scan<'p>) -> Option<PodView<'p>> {
    let mut seen = Once::default();
    let (mut read, mut spec, mut status) = (None, Spec::default(), Status::default());
    let mut mirror = None;
    scan.object(|scan, key| match key {
        "metadata" => {
            seen.see(0)?;
            read = Some(meta(scan, true, |scan, key| {
                if key != "annotations" {
                    return scan.skip();
                }
                seen.see(3)?;
                annotation(scan, MIRROR, &mut mirror)
            })?);
            Some(())
        }
        "spec" => {
            seen.see(1)?;
            spec.read(scan)
        }
        "status" => {
            seen.see(2)?;
            status.read(scan)
        }
        _ => scan.skip(),
    })?;
    spec.ports.append(&mut spec.sidecars);
    if status.addresses.is_empty() && !status.address.is_empty() {
        status.addresses.push(address(status.address)?);
    }
    Some(PodView {
        meta: read?,
        node: Cow::Borrowed(spec.node),
        host_network: spec.host_network,
        service_account: Cow::Borrowed(match (spec.account, spec.old_account) {
            ("", "") => "default",
            ("", old) => old,
            (account, _) => account,
        }),
        phase: match status.phase {
            "Succeeded" | "Failed" => Phase::Ended,
            _ => Phase::Live,
        },
        addresses: status.addresses,
        ports: spec.ports,
        mirror,
    })
}

#[derive(Default)]
struct Spec<'p> {
    node: &'p str,
    host_network: bool,
    account: &'p str,
    old_account: &'p str,
    ports: Vec<PortView<'p>>,
    sidecars: Vec<PortView<'p>>,
}

impl<'p> Spec<'p> {
    fn read(&mut self, scan: &mut Scan<'p>) -> Option<()> {
        let mut seen = Once::default();
        scan.some_object(|scan, key| {
            match key {
                "nodeName" => {
                    seen.see(0)?;
                    self.node = scan.some_text()?;
                }
                "hostNetwork" => {
                    seen.see(1)?;
                    self.host_network = scan.flag()?;
                }
                "serviceAccountName" => {
                    seen.see(2)?;
                    self.account = scan.some_text()?;
                }
                "serviceAccount" => {
                    seen.see(5)?;
                    self.old_account = scan.some_text()?;
                }
                "containers" => {
                    seen.see(3)?;
                    scan.list(|scan| container(scan, &mut self.ports, false))?;
                }
                "initContainers" => {
                    seen.see(4)?;
                    scan.list(|scan| container(scan, &mut self.sidecars, true))?;
                }
                _ => scan.skip()?,
            }
            Some(())
        })
    }
}

#[derive(Default)]
struct Status<'p> {
    phase: &'p str,
    address: &'p str,
    addresses: Vec<IpAddr>,
}

impl<'p> Status<'p> {
    fn read(&mut self, scan: &mut Scan<'p>) -> Option<()> {
        let mut seen = Once::default();
        scan.some_object(|scan, key| {
            match key {
                "phase" => {
                    seen.see(0)?;
                    self.phase = scan.some_text()?;
                }
                "podIP" => {
                    seen.see(1)?;
                    self.address = scan.some_text()?;
                }
                "podIPs" => {
                    seen.see(2)?;
                    scan.list(|scan| self.one(scan))?;
                }
                _ => scan.skip()?,
            }
            Some(())
        })
    }

    fn one(&mut self, scan: &mut Scan<'p>) -> Option<()> {
        let mut seen = Once::default();
        scan.object(|scan, key| {
            if key != "ip" {
                return scan.skip();
            }
            seen.see(0)?;
            self.addresses.push(address(scan.text()?)?);
            Some(())
        })
    }
}

/// Reads a container's named ports; of one that must be restarted always, none if it is not.
fn container<'p>(
    scan: &mut Scan<'p>,
    ports: &mut Vec<PortView<'p>>,
    restarted: bool,
) -> Option<()> {
    let mut seen = Once::default();
    let (before, mut policy) = (ports.len(), "");
    scan.object(|scan, key| match key {
        "ports" => {
            seen.see(0)?;
            scan.list(|scan| port(scan, ports))
        }
        "restartPolicy" if restarted => {
            seen.see(1)?;
            policy = scan.some_text()?;
            Some(())
        }
        _ => scan.skip(),
    })?;
    if restarted && policy != "Always" {
        ports.truncate(before);
    }
    Some(())
}

fn port<'p>(scan: &mut Scan<'p>, ports: &mut Vec<PortView<'p>>) -> Option<()> {
    let mut seen = Once::default();
    let (mut name, mut protocol, mut number) = ("", Protocol::Tcp, None);
    scan.object(|scan, key| {
        match key {
            "name" => {
                seen.see(0)?;
                name = scan.some_text()?;
            }
            "protocol" => {
                seen.see(1)?;
                protocol = super::protocol(scan)?;
            }
            "containerPort" => {
                seen.see(2)?;
                number = Some(scan.port()?);
            }
            _ => scan.skip()?,
        }
        Some(())
    })?;
    if !name.is_empty() {
        ports.push(PortView { name: Cow::Borrowed(name), protocol, port: number? });
    }
    Some(())
}

fn address(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|address| address.to_canonical())
}

impl<'a> From<&'a Pod> for PodView<'a> {
    fn from(pod: &'a Pod) -> Self {
        let port = |port: &'a ContainerPort| PortView {
            name: Cow::Borrowed(&port.name),
            protocol: port.protocol,
            port: port.port,
        };
        Self {
            meta: MetaView::from(&pod.meta),
            node: Cow::Borrowed(&pod.node),
            host_network: pod.host_network,
            service_account: Cow::Borrowed(&pod.service_account),
            phase: pod.phase,
            addresses: pod.addresses.clone(),
            ports: pod.ports.iter().map(port).collect(),
            mirror: pod.meta.annotations.get(MIRROR).map(Cow::from),
        }
    }
}

impl PodView<'_> {
    pub(super) fn into_owned(self) -> PodView<'static> {
        let port = |PortView { name, protocol, port }: PortView<'_>| PortView {
            name: owned(name),
            protocol,
            port,
        };
        PodView {
            meta: self.meta.into_owned(),
            node: owned(self.node),
            host_network: self.host_network,
            service_account: owned(self.service_account),
            phase: self.phase,
            addresses: self.addresses,
            ports: self.ports.into_iter().map(port).collect(),
            mirror: self.mirror.map(owned),
        }
    }
}

impl From<PodView<'_>> for Pod {
    fn from(view: PodView<'_>) -> Self {
        let port = |port: PortView<'_>| ContainerPort {
            name: port.name.into_owned(),
            protocol: port.protocol,
            port: port.port,
        };
        let mut meta = Meta::from(view.meta);
        if let Some(mirror) = view.mirror {
            meta.annotations.insert(MIRROR.to_owned(), mirror.into_owned());
        }
        Self {
            meta,
            node: view.node.into_owned(),
            host_network: view.host_network,
            service_account: view.service_account.into_owned(),
            phase: view.phase,
            addresses: view.addresses,
            ports: view.ports.into_iter().map(port).collect(),
        }
    }
}
