//! An API server for kube-proxy. It serves lists and watches of a cluster from memory.
//!
//! kube-proxy has no other client of the API server beside it, and needs no other kind of request.

use crate::{cluster::Cluster, site};
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

/// The server. It runs until the process ends.
pub(crate) struct Api {
    pub(crate) at: SocketAddr,
    kinds: Kinds,
}

/// By the path of their requests.
type Kinds = Arc<Mutex<BTreeMap<&'static str, Kind>>>;

/// The objects of a kind.
struct Kind {
    name: &'static str,
    api: &'static str,
    /// Counts the writes.
    version: u64,
    /// By name, as JSON.
    objects: BTreeMap<String, String>,
    /// The sender of each watch.
    watches: Vec<Sender<String>>,
}

const SLICES: &str = "/apis/discovery.k8s.io/v1/endpointslices";
/// Path, kind and version. There are no ServiceCIDRs.
const KINDS: [(&str, &str, &str); 4] = [
    ("/api/v1/nodes", "Node", "v1"),
    ("/api/v1/services", "Service", "v1"),
    (SLICES, "EndpointSlice", "discovery.k8s.io/v1"),
    ("/apis/networking.k8s.io/v1/servicecidrs", "ServiceCIDR", "networking.k8s.io/v1"),
];

impl Api {
    /// Serves the cluster on the loopback link of the calling thread's network namespace.
    pub(crate) fn start(cluster: &Cluster) -> Result<Self> {
        let mut kinds: BTreeMap<_, _> = KINDS.into_iter().map(Kind::new).collect();
        let objects = cluster.services().chain(cluster.slices());
        for object in objects.chain([node()]) {
            let kind = kinds.values_mut().find(|kind| object["kind"] == kind.name);
            kind.context("an unknown kind")?.put(object);
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a port")?;
        let at = listener.local_addr().context("read the port")?;
        let kinds = Arc::new(Mutex::new(kinds));
        let served = Arc::clone(&kinds);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kinds = Arc::clone(&served);
                // A connection ends with kube-proxy.
                thread::spawn(move || serve(&stream, &kinds).ok());
            }
        });
        Ok(Self { at, kinds })
    }

    /// Writes a slice.
    pub(crate) fn put_slice(&self, slice: Value) -> Result<()> {
        let mut kinds = lock(&self.kinds);
        kinds.get_mut(SLICES).context("no slices")?.put(slice);
        Ok(())
    }
}

impl Kind {
    fn new((path, name, api): (&'static str, &'static str, &'static str)) -> (&'static str, Self) {
        (path, Self { name, api, version: 1, objects: BTreeMap::new(), watches: Vec::new() })
    }

    fn put(&mut self, mut object: Value) {
        self.version += 1;
        // Clients ignore an event with the version that they have.
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let text = object.to_string();
        let event = event("MODIFIED", &text);
        self.watches.retain(|watch| watch.send(event.clone()).is_ok());
        self.objects.insert(object["metadata"]["name"].to_string(), text);
    }

    fn list(&self) -> String {
        let items = self.objects.values().map(String::as_str).collect::<Vec<_>>().join(",");
        format!(
            r#"{{"kind":"{}List","apiVersion":"{}","metadata":{{"resourceVersion":"{}"}},"items":[{items}]}}"#,
            self.name, self.api, self.version
        )
    }

    /// Starts a watch. With `has_all` the first events are all objects and the mark of their end.
    fn watch(&mut self, has_all: bool) -> (Vec<String>, Receiver<String>) {
        let (sender, receiver) = channel();
        self.watches.push(sender);
        if !has_all {
            return (Vec::new(), receiver);
        }
        let end = json!({
            "kind": self.name, "apiVersion": self.api,
            "metadata": {
                "resourceVersion": self.version.to_string(),
                "annotations": {"k8s.io/initial-events-end": "true"},
            },
        });
        let all = self.objects.values().map(|object| event("ADDED", object));
        (all.chain([event("BOOKMARK", &end.to_string())]).collect(), receiver)
    }
}

/// A list, or the first events of a watch with those that follow.
enum Reply {
    List(String),
    Watch((Vec<String>, Receiver<String>)),
}

fn lock(kinds: &Kinds) -> MutexGuard<'_, BTreeMap<&'static str, Kind>> {
    kinds.lock().unwrap_or_else(PoisonError::into_inner)
}

fn event(of: &str, object: &str) -> String {
    format!("{{\"type\":\"{of}\",\"object\":{object}}}\n")
}

/// Answers the requests of a connection, until a watch takes it over.
fn serve(stream: &TcpStream, kinds: &Kinds) -> Result<()> {
    let mut requests = BufReader::new(stream);
    let mut answers = BufWriter::new(stream);
    loop {
        let mut request = String::new();
        requests.read_line(&mut request)?;
        let target = request.split(' ').nth(1).context("no request")?.to_owned();
        let mut length = 0;
        loop {
            let mut header = String::new();
            requests.read_line(&mut header)?;
            let header = header.trim_end().to_ascii_lowercase();
            if header.is_empty() {
                break;
            }
            if let Some(value) = header.strip_prefix("content-length:") {
                length = value.trim().parse()?;
            }
        }
        requests.read_exact(&mut vec![0; length])?;
        let (path, query) = target.split_once('?').unwrap_or((&target, ""));
        let has = |word: &str| query.split('&').any(|part| part == word);
        let is_watch = has("watch=true") || has("watch=1");
        let is_read = request.starts_with("GET ");
        let reply = lock(kinds).get_mut(path).filter(|_| is_read).map(|kind| match is_watch {
            true => Reply::Watch(kind.watch(has("sendInitialEvents=true"))),
            false => Reply::List(kind.list()),
        });
        match reply {
            Some(Reply::List(list)) => {
                answer(&mut answers, "200 OK", &list)?;
                continue;
            }
            Some(Reply::Watch((first, events))) => return send(&mut answers, first, &events),
            None => {}
        }
        // Events of kube-proxy are not stored.
        let status =
            json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 404});
        answer(&mut answers, "404 Not Found", &status.to_string())?;
    }
}

fn answer(to: &mut impl Write, status: &str, body: &str) -> Result<()> {
    let length = body.len();
    write!(
        to,
        "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    )?;
    Ok(to.flush()?)
}

/// Sends events, each as a chunk, until the client closes the connection.
fn send(to: &mut impl Write, first: Vec<String>, events: &Receiver<String>) -> Result<()> {
    write!(
        to,
        "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    )?;
    for event in first {
        send_chunk(to, &event)?;
    }
    to.flush()?;
    for event in events {
        send_chunk(to, &event)?;
        to.flush()?;
    }
    Ok(())
}

fn send_chunk(to: &mut impl Write, event: &str) -> io::Result<()> {
    write!(to, "{:x}\r\n{event}\r\n", event.len())
}

/// The node of kube-proxy.
fn node() -> Value {
    let address = json!({"type": "InternalIP", "address": site::NODE});
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": NODE_NAME, "uid": NODE_NAME, "resourceVersion": "1"},
        "status": {"addresses": [address]},
    })
}

/// The name of the node.
pub(crate) const NODE_NAME: &str = "n1";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::{Backends, slice};
    use std::net::Shutdown;

    fn ask(api: &Api, target: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(api.at).expect("a connection");
        write!(stream, "GET {target} HTTP/1.1\r\nHost: api\r\n\r\n").expect("a request");
        // The server closes the connection after the answer.
        stream.shutdown(Shutdown::Write).expect("the last request");
        BufReader::new(stream)
    }

    /// The next event of a watch.
    fn next(answer: &mut BufReader<TcpStream>) -> Value {
        loop {
            let mut line = String::new();
            assert!(answer.read_line(&mut line).expect("a line") > 0, "the watch has ended");
            if line.starts_with('{') {
                return serde_json::from_str(&line).expect("an event");
            }
        }
    }

    #[test]
    fn a_watch_has_all_objects_and_later_writes() {
        let cluster = Cluster { services: 3, backends: Backends::Elsewhere(101) };
        let api = Api::start(&cluster).expect("a server");
        let mut watch = ask(&api, &format!("{SLICES}?sendInitialEvents=true&watch=true"));
        let first: Vec<Value> = (0..6).map(|_| next(&mut watch)).collect();
        let kinds: Vec<&str> = first.iter().filter_map(|event| event["type"].as_str()).collect();
        assert_eq!(kinds, ["ADDED", "ADDED", "ADDED", "ADDED", "ADDED", "BOOKMARK"]);
        let written = slice(1, 0, &[Ipv4Addr::LOCALHOST], 1);
        api.put_slice(written).expect("a write");
        let event = next(&mut watch);
        assert_eq!(event["type"], "MODIFIED");
        assert_eq!(event["object"]["endpoints"][0]["addresses"][0], "127.0.0.1");
        let version = &event["object"]["metadata"]["resourceVersion"];
        assert_ne!(*version, first[5]["object"]["metadata"]["resourceVersion"]);
    }

    #[test]
    fn a_list_has_all_objects_and_other_paths_have_none() {
        let cluster = Cluster { services: 3, backends: Backends::Ports(1) };
        let api = Api::start(&cluster).expect("a server");
        let list = next(&mut ask(&api, "/api/v1/services?limit=500&resourceVersion=0"));
        assert_eq!(list["kind"], "ServiceList");
        assert_eq!(list["items"].as_array().map(Vec::len), Some(3));
        assert_eq!(next(&mut ask(&api, "/api/v1/pods"))["code"], 404);
    }
}
