//! The controller's replicas for the agent: the ready addresses in the EndpointSlices of a Service, as a file. The agent
//! has no access to the API server.

use crate::{
    Concern, Replicas,
    fault::{Fault, Kind},
    status_reporter::StatusReporter,
    watch::{Subject, Watch},
};
use k8s_openapi::api::discovery::v1::{EndpointPort, EndpointSlice};
use kube::{Api, Client, runtime::watcher::Event};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    net::{IpAddr, SocketAddr},
    path::Path,
    time::Duration,
};
use tokio::time::sleep;

/// The addresses of each EndpointSlice, by its name.
type Slices = BTreeMap<String, BTreeSet<SocketAddr>>;

/// Watches the EndpointSlices, and writes the file whenever the ready addresses differ from its content.
pub(crate) async fn run(client: Client, wanted: Replicas, status: StatusReporter) {
    let Replicas { service: (namespace, name), file } = wanted;
    let subject = Subject {
        concern: Concern::Replicas,
        resource: SLICES,
        fields: String::new(),
        labels: format!("kubernetes.io/service-name={name}"),
        page: None,
    };
    let api = Api::<EndpointSlice>::namespaced(client, &namespace);
    let mut watch = Watch::new(api, subject, status.clone());
    let (mut slices, mut coming) = (Slices::new(), None);
    let mut is_behind = false;
    loop {
        tokio::select! {
            batch = watch.batch() => {
                batch.into_iter().for_each(|event| take_in(event, &mut slices, &mut coming));
            }
            () = sleep(if is_behind { AGAIN } else { CHECK }) => {}
        }
        // An incomplete list changes nothing: the earlier replicas count until it is complete.
        if coming.is_some() {
            continue;
        }
        let written = write(&file, &text(&slices));
        if is_behind && written.is_ok() {
            status.good(Concern::Replicas, &file.display().to_string());
        }
        is_behind = written.is_err();
        if let Err(error) = written {
            let object = file.display().to_string();
            let fault = Fault {
                kind: Kind::Other,
                cause: format!("cannot write {object}: {error}"),
                next_step: "check that the folder can be written to and its disk is not full"
                    .into(),
            };
            status.failing(Concern::Replicas, &object, &fault);
        }
    }
}

fn take_in(event: Event<EndpointSlice>, slices: &mut Slices, coming: &mut Option<Slices>) {
    let name = |slice: &EndpointSlice| slice.metadata.name.clone().unwrap_or_default();
    match event {
        Event::Init => *coming = Some(Slices::new()),
        Event::InitApply(slice) => {
            let coming = coming.get_or_insert_default();
            drop(coming.insert(name(&slice), addresses(&slice)));
        }
        Event::InitDone => *slices = coming.take().unwrap_or_default(),
        Event::Apply(slice) => drop(slices.insert(name(&slice), addresses(&slice))),
        Event::Delete(slice) => drop(slices.remove(&name(&slice))),
    }
}

/// The ready addresses of a slice, with the port named `policy` or the only port.
fn addresses(slice: &EndpointSlice) -> BTreeSet<SocketAddr> {
    let ports = slice.ports.as_deref().unwrap_or_default();
    let named = ports.iter().find(|port| port.name.as_deref() == Some(PORT));
    let port: Option<&EndpointPort> = named.or(match ports {
        [only] => Some(only),
        _ => None,
    });
    let port = port.and_then(|port| u16::try_from(port.port?).ok());
    let Some(port) = port else { return BTreeSet::new() };
    let ready = slice.endpoints.iter().flatten().filter(|endpoint| {
        // An endpoint without the condition is ready, as the API defines.
        endpoint.conditions.as_ref().is_none_or(|conditions| conditions.ready != Some(false))
    });
    let texts = ready.flat_map(|endpoint| &endpoint.addresses);
    texts.filter_map(|text| Some(SocketAddr::new(text.parse::<IpAddr>().ok()?, port))).collect()
}

/// Returns one address a line.
fn text(slices: &Slices) -> String {
    let all: BTreeSet<&SocketAddr> = slices.values().flatten().collect();
    all.into_iter().map(|at| format!("{at}\n")).collect()
}

/// Replaces the file at once, unless it has this text.
fn write(file: &Path, text: &str) -> io::Result<()> {
    if fs::read_to_string(file).is_ok_and(|before| before == text) {
        return Ok(());
    }
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let new = file.with_extension("new");
    fs::write(&new, text)?;
    fs::rename(&new, file)
}

const SLICES: &str = "endpointslices.discovery.k8s.io";
const PORT: &str = "policy";
/// Interval at which a removed file is written again.
const CHECK: Duration = Duration::from_secs(30);
/// Pause after a failed write.
const AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    fn slice(name: &str, ports: &str) -> EndpointSlice {
        let text = format!(
            r#"{{"addressType":"IPv4","metadata":{{"name":"{name}"}},"ports":{ports},"endpoints":[
            {{"addresses":["10.0.0.1"],"conditions":{{"ready":true}}}},
            {{"addresses":["10.0.0.2"],"conditions":{{"ready":false,"serving":true}}}},
            {{"addresses":["10.0.0.3"]}},{{"addresses":["a.name"]}}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn replicas_are_ready_addresses_at_the_port_of_policy() {
        let at = |port: u16| {
            let of = |last: u8| SocketAddr::from(([10, 0, 0, last], port));
            BTreeSet::from([of(1), of(3)])
        };
        let two = r#"[{"name":"metrics","port":1},{"name":"policy","port":2}]"#;
        assert_eq!(addresses(&slice("s", two)), at(2));
        assert_eq!(addresses(&slice("s", r#"[{"name":"any","port":3}]"#)), at(3));
        let none = r#"[{"name":"a","port":1},{"name":"b","port":2}]"#;
        assert!(addresses(&slice("s", none)).is_empty());
        assert!(addresses(&slice("s", "[]")).is_empty());
    }

    #[test]
    fn an_incomplete_list_keeps_the_earlier_replicas() {
        let port = r#"[{"name":"policy","port":2}]"#;
        let (mut slices, mut coming) = (Slices::new(), None);
        let mut take = |event| {
            take_in(event, &mut slices, &mut coming);
            coming.is_none().then(|| text(&slices))
        };
        assert_eq!(take(Event::Init), None);
        assert_eq!(take(Event::InitApply(slice("a", port))), None);
        let both = "10.0.0.1:2\n10.0.0.3:2\n".to_owned();
        assert_eq!(take(Event::InitDone), Some(both.clone()));
        assert_eq!(take(Event::Init), None);
        assert_eq!(take(Event::InitDone), Some(String::new()));
        assert_eq!(take(Event::Apply(slice("b", port))), Some(both));
        assert_eq!(take(Event::Delete(slice("b", port))), Some(String::new()));
    }
}
