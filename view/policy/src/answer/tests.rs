//! Requests about a small cluster.

#![expect(clippy::unwrap_used, reason = "a test fails at the place of the panic")]

use super::*;
use control_hub::ClientState;
use policy_core::{compile, index::Event};
use policy_objects::{Kind, Object};

fn read(kind: Kind, value: &Value) -> Object {
    Object::read_as(kind, value).map(|parsed| parsed.object).unwrap()
}

fn pod(name: &str, app: &str, node: &str, address: &str) -> Object {
    let meta = json!({ "namespace": "x", "name": name, "uid": format!("uid-{name}"), "labels": { "app": app } });
    let status = json!({ "phase": "Running", "podIPs": [{ "ip": address }] });
    read(Kind::Pod, &json!({ "metadata": meta, "spec": { "nodeName": node }, "status": status }))
}

/// A cluster with a policy that allows web (on n2) to reach api (on n1).
fn cluster() -> Hub {
    let mut hub = Hub::new([1; 16], 0);
    let namespace = read(Kind::Namespace, &json!({ "metadata": { "name": "x", "uid": "uid-x" } }));
    let api = json!({ "matchLabels": { "app": "api" } });
    let web = json!([{ "from": [{ "podSelector": { "matchLabels": { "app": "web" } } }] }]);
    let policy = read(
        Kind::NetworkPolicy,
        &json!({
            "metadata": { "namespace": "x", "name": "api", "uid": "uid-policy", "generation": 3 },
            "spec": { "podSelector": api, "ingress": web },
        }),
    );
    let pods = [pod("api", "api", "n1", "10.0.0.1"), pod("web", "web", "n2", "10.0.0.2")];
    let Object::Namespace(namespace) = &namespace else { unreachable!() };
    hub.apply(Event::Namespace(namespace));
    for pod in &pods {
        let Object::Pod(pod) = pod else { unreachable!() };
        hub.apply(Event::Pod(pod));
    }
    hub.policy(&compile(&policy).unwrap(), 3);
    hub.loaded();
    hub
}

fn ask(hub: &Hub, path: &str, limit: usize, behind: &str) -> Answer {
    let path = format!("/apis/view.policy.ferrule.io/v1alpha1{path}");
    let asked = Query { path: &path, limit: Some(limit), behind };
    let realized = |node: &str| {
        let realized = Realized { policies: 2, ..Realized::default() };
        (node == "n3").then_some(realized)
    };
    answer(hub, &asked, &realized, &BTreeSet::from(["n3".to_owned()]))
}

fn good(hub: &Hub, path: &str) -> Value {
    let answer = ask(hub, path, 0, "");
    assert_eq!(answer.code, 200, "{path}: {}", answer.document);
    answer.document
}

#[test]
fn the_document_of_a_policy_has_its_groups_and_nodes() {
    let hub = cluster();
    let policy: Policy = serde_json::from_value(good(&hub, "/policies/uid-policy")).unwrap();
    assert_eq!((policy.policy.as_str(), policy.generation), ("NetworkPolicy x/api", 3));
    assert_eq!((policy.rules, policy.span), (1, vec!["n1".to_owned()]));
    assert_eq!(good(&hub, "/policies")["items"].as_array().unwrap().len(), 1);
    let peers = policy.peers.iter().map(|id| {
        let group: Group = serde_json::from_value(good(&hub, &format!("/groups/{id}"))).unwrap();
        (group.members.unwrap(), group.span)
    });
    let web = Peer {
        namespace: "x".to_owned(),
        name: "web".to_owned(),
        node: "n2".to_owned(),
        addresses: vec!["10.0.0.2".to_owned()],
    };
    assert_eq!(peers.collect::<Vec<_>>(), [(vec![web], vec!["n1".to_owned()])]);
}

#[test]
fn agents_are_those_that_follow_and_those_that_report() {
    let mut hub = cluster();
    hub.open_stream("n1", &ClientState::default());
    let agents = good(&hub, "/agents")["items"].clone();
    let agents: Vec<Agent> = serde_json::from_value(agents).unwrap();
    let seen: Vec<_> = agents
        .iter()
        .map(|agent| {
            (agent.metadata.name.as_str(), agent.stream.is_some(), agent.realized.is_some())
        })
        .collect();
    assert_eq!(seen, [("n1", true, false), ("n3", false, true)]);
    let stream = agents[0].stream.as_ref().unwrap();
    assert!(stream.follows && stream.owed > 0, "{stream:?}");
    let n3: Agent = serde_json::from_value(good(&hub, "/agents/n3")).unwrap();
    assert_eq!(n3.realized.unwrap().policies, 2);
}

#[test]
fn pages_are_followed_to_the_end() {
    let hub = cluster();
    let (mut behind, mut seen) = (String::new(), Vec::new());
    loop {
        let page = ask(&hub, "/groups", 1, &behind).document;
        let names = page["items"].as_array().unwrap().iter();
        seen.extend(names.map(|group| group["metadata"]["name"].as_str().unwrap().to_owned()));
        behind = page["metadata"]["continue"].as_str().unwrap().to_owned();
        if behind.is_empty() {
            break;
        }
    }
    let all = good(&hub, "/groups")["items"].as_array().unwrap().len();
    assert!(all >= 2 && seen.len() == all && seen.is_sorted(), "{seen:?}");
}

#[test]
fn a_missing_object_is_an_error() {
    let hub = cluster();
    for path in
        ["/agents/n9", "/policies/none", "/groups/00", "/groups/äää", "/other", "/agents/n1/x"]
    {
        let answer = ask(&hub, path, 0, "");
        assert_eq!((answer.code, &answer.document["kind"]), (404, &json!("Status")), "{path}");
    }
    assert_eq!(good(&hub, "")["resources"].as_array().unwrap().len(), 3);
}
