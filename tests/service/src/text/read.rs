//! Reads worlds and expected routes.

use service_core::{Client, NodeView, Packet, World};
use service_objects::{
    ClientAffinity, Endpoint, Family, Ingress, IngressMode, ObjectName, Protocol, Service,
    ServiceKind, ServicePort, Slice, SlicePort, TrafficPolicy,
};
use std::{fmt::Display, net::SocketAddr, str::FromStr, sync::Arc};

/// A world with packets and their expected routes, as [`show_route`](super::show_route) writes these.
#[derive(Clone, Debug, Default)]
pub struct Vector {
    pub title: String,
    pub world: World,
    pub expected: Vec<(Packet, String)>,
}

/// Reads vectors. A line `== TITLE` starts a vector, `#` starts a comment.
///
/// # Errors
/// The first line that is not understood, with its number.
pub fn read(text: &str) -> Result<Vec<Vector>, String> {
    let mut reader = Reader::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        reader.line(line).map_err(|cause| format!("line {}: {line:?}: {cause}", at + 1))?;
    }
    Ok(reader.vectors)
}

/// The object of a line that starts with `port` or `endpoint`.
#[derive(Default)]
enum Owner {
    #[default]
    None,
    Service(ObjectName),
    Slice(ObjectName),
}

#[derive(Default)]
struct Reader {
    vectors: Vec<Vector>,
    owner: Owner,
}

impl Reader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        if line.is_empty() {
            return Ok(());
        }
        if let Some(title) = line.strip_prefix("== ") {
            self.vectors.push(Vector { title: title.to_owned(), ..Vector::default() });
            self.owner = Owner::None;
            return Ok(());
        }
        let (line, expected) = match line.split_once(" = ") {
            Some((line, expected)) => (line, Some(expected.trim())),
            None => (line, None),
        };
        let vector = self.vectors.last_mut().ok_or("no title before")?;
        let world = &mut vector.world;
        let mut words = Words(line.split_whitespace().collect());
        match (words.next()?, expected, &self.owner) {
            ("packet", Some(expected), _) => {
                vector.expected.push((packet(&mut words)?, expected.to_owned()));
            }
            ("node", None, _) => world.node = node(&mut words)?,
            ("service", None, _) => {
                let service = service(&mut words)?;
                self.owner = Owner::Service(service.name.clone());
                world.services.insert(service.name.clone(), Arc::new(service));
            }
            ("slice", None, _) => {
                let slice = slice(&mut words)?;
                self.owner = Owner::Slice(slice.name.clone());
                world.slices.insert(slice.name.clone(), Arc::new(slice));
            }
            ("port", None, Owner::Service(name)) => {
                let service = world.services.get_mut(name).ok_or("no Service")?;
                Arc::make_mut(service).ports.push(service_port(&mut words)?);
            }
            ("port", None, Owner::Slice(name)) => {
                let slice = world.slices.get_mut(name).ok_or("no slice")?;
                Arc::make_mut(slice).ports.push(slice_port(&mut words)?);
            }
            ("endpoint", None, Owner::Slice(name)) => {
                let slice = world.slices.get_mut(name).ok_or("no slice")?;
                Arc::make_mut(slice).endpoints.push(endpoint(&mut words)?);
            }
            _ => return Err("no such line here".to_owned()),
        }
        words.end()
    }
}

fn node(words: &mut Words<'_>) -> Result<NodeView, String> {
    Ok(NodeView {
        name: words.parse()?,
        zone: words.value("zone")?,
        addresses: words.list("at")?.unwrap_or_default().into_iter().collect(),
    })
}

fn service(words: &mut Words<'_>) -> Result<Service, String> {
    let name = words.object_name()?;
    let kind = match words.next()? {
        "ClusterIp" => ServiceKind::ClusterIp,
        "NodePort" => ServiceKind::NodePort,
        "LoadBalancer" => ServiceKind::LoadBalancer,
        "ExternalName" => ServiceKind::ExternalName,
        other => return Err(format!("unknown kind {other}")),
    };
    let mut ingress = Vec::new();
    for (word, mode) in [("vip", IngressMode::Vip), ("proxied", IngressMode::Proxy)] {
        let addresses = words.list(word)?.unwrap_or_default();
        ingress.extend(addresses.into_iter().map(|address| Ingress { address, mode }));
    }
    Ok(Service {
        name,
        created: words.value("created")?.unwrap_or_default(),
        kind,
        other_proxy: words.value("other-proxy")?,
        headless: words.flag("headless"),
        cluster_ips: words.list("cluster")?.unwrap_or_default(),
        external_ips: words.list("external")?.unwrap_or_default(),
        ingress,
        source_ranges: words.list("ranges")?,
        ports: Vec::new(),
        internal_policy: words.policy("internal-local"),
        external_policy: words.policy("external-local"),
        health_check_node_port: None,
        affinity: words
            .value("affinity")?
            .map(|timeout_seconds| ClientAffinity { timeout_seconds }),
        problems: Vec::new(),
    })
}

fn service_port(words: &mut Words<'_>) -> Result<ServicePort, String> {
    Ok(ServicePort {
        name: words.port_name()?,
        protocol: words.protocol()?,
        port: words.parse()?,
        node_port: words.value("node-port")?,
    })
}

fn slice(words: &mut Words<'_>) -> Result<Slice, String> {
    let name = words.object_name()?;
    words.expect("of")?;
    Ok(Slice {
        name,
        service: words.object_name()?,
        family: match words.next()? {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            other => return Err(format!("unknown family {other}")),
        },
        other_proxy: words.value("other-proxy")?,
        headless: words.flag("headless"),
        ports: Vec::new(),
        endpoints: Vec::new(),
        triggered_ms: None,
        problems: Vec::new(),
    })
}

fn slice_port(words: &mut Words<'_>) -> Result<SlicePort, String> {
    let (name, protocol) = (words.port_name()?, words.protocol()?);
    Ok(SlicePort { name, protocol, port: words.parse()? })
}

fn endpoint(words: &mut Words<'_>) -> Result<Endpoint, String> {
    Ok(Endpoint {
        address: words.parse()?,
        ready: words.flag("ready"),
        serving: words.flag("serving"),
        terminating: words.flag("terminating"),
        node: words.value("node")?,
        zone: words.value("zone")?,
        zone_hints: words.list("for-zones")?.unwrap_or_default(),
        node_hints: words.list("for-nodes")?.unwrap_or_default(),
    })
}

fn packet(words: &mut Words<'_>) -> Result<Packet, String> {
    let client = match words.next()? {
        "node" => Client::Node,
        "outside" => Client::Outside,
        other => return Err(format!("unknown client {other}")),
    };
    let source = words.parse()?;
    words.expect(">")?;
    let to: SocketAddr = words.parse()?;
    let protocol = words.protocol()?;
    Ok(Packet { client, source, destination: to.ip(), port: to.port(), protocol })
}

/// Words of a line that are not read yet.
struct Words<'a>(Vec<&'a str>);

impl<'a> Words<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        match self.0.is_empty() {
            true => Err("too short".to_owned()),
            false => Ok(self.0.remove(0)),
        }
    }

    fn expect(&mut self, word: &str) -> Result<(), String> {
        let found = self.next()?;
        if found == word { Ok(()) } else { Err(format!("{found} instead of {word}")) }
    }

    fn parse<T: FromStr<Err: Display>>(&mut self) -> Result<T, String> {
        read_word(self.next()?)
    }

    fn object_name(&mut self) -> Result<ObjectName, String> {
        let word = self.next()?;
        let (namespace, name) = word.split_once('/').ok_or("no namespace")?;
        Ok(ObjectName::new(namespace, name))
    }

    fn port_name(&mut self) -> Result<String, String> {
        let word = self.next()?;
        Ok(if word == "-" { String::new() } else { word.to_owned() })
    }

    fn protocol(&mut self) -> Result<Protocol, String> {
        match self.next()? {
            "TCP" => Ok(Protocol::Tcp),
            "UDP" => Ok(Protocol::Udp),
            "SCTP" => Ok(Protocol::Sctp),
            other => Err(format!("unknown protocol {other}")),
        }
    }

    fn flag(&mut self, name: &str) -> bool {
        let position = self.0.iter().position(|word| *word == name);
        position.map(|position| self.0.remove(position)).is_some()
    }

    fn policy(&mut self, name: &str) -> TrafficPolicy {
        if self.flag(name) { TrafficPolicy::Local } else { TrafficPolicy::Cluster }
    }

    fn text(&mut self, name: &str) -> Option<&'a str> {
        let value = |word: &&'a str| word.strip_prefix(name)?.strip_prefix('=');
        let position = self.0.iter().position(|word| value(word).is_some())?;
        value(&self.0.remove(position))
    }

    fn value<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<T>, String> {
        self.text(name).map(read_word).transpose()
    }

    /// `None` if the line lacks the list. Text without a character is an empty list.
    fn list<T: FromStr<Err: Display>>(&mut self, name: &str) -> Result<Option<Vec<T>>, String> {
        let words = |text: &'a str| text.split(',').filter(|word| !word.is_empty()).map(read_word);
        self.text(name).map(|text| words(text).collect()).transpose()
    }

    fn end(&self) -> Result<(), String> {
        match self.0.first() {
            Some(word) => Err(format!("unknown word {word}")),
            None => Ok(()),
        }
    }
}

fn read_word<T: FromStr<Err: Display>>(word: &str) -> Result<T, String> {
    word.parse().map_err(|error: T::Err| format!("{word}: {error}"))
}
