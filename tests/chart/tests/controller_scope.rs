//! The rights of the controller's account: its roles name the objects that it writes, and an admission policy limits
//! their content. The chart creates these objects.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use base64::{Engine as _, prelude::BASE64_STANDARD};
use kube::Client;
use lab_kubernetes::{Cluster, ClusterSpec};
use serde_json::{Value, json};
use tests_chart::{
    Chart,
    requests::{as_account, ask},
};
use tests_eventually::{PATIENCE, eventually_async};

const SYSTEM: &str = "/api/v1/namespaces/kube-system";
const SECRET: &str = "/api/v1/namespaces/kube-system/secrets/ferrule-controller-tls";
const MAP: &str = "/api/v1/namespaces/kube-system/configmaps/ferrule-controller-ca";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
const LEASE: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ferrule-controller";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
const SLICE: &str =
    "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices/ferrule-controller-view";
const SERVICES: &str = "/apis/apiregistration.k8s.io/v1/apiservices";
const SERVICE: &str = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.view.policy.ferrule.io";

/// A request with its name.
type Row = (&'static str, &'static str, String, Value);

fn row(what: &'static str, verb: &'static str, path: &str, body: Value) -> Row {
    (what, verb, path.to_owned(), body)
}

/// A policy of a kind with a status. The chart installs the kinds.
struct Policy {
    kind: &'static str,
    version: &'static str,
    /// The path of the kind's objects.
    objects: &'static str,
    spec: Value,
    /// Another valid spec.
    changed: Value,
    status: Value,
}

impl Policy {
    fn path(&self) -> String {
        format!("{}/p", self.objects)
    }

    fn named(&self, name: &str) -> Value {
        json!({
            "apiVersion": self.version, "kind": self.kind, "metadata": { "name": name },
            "spec": self.spec,
        })
    }

    /// Returns writes that only an author of policies performs.
    fn changes(&self) -> Vec<Row> {
        let (path, kind) = (self.path(), self.version);
        let spec = json!({ "spec": self.changed });
        vec![
            (kind, "PUT", path.clone(), spec.clone()),
            (kind, "PATCH", path.clone(), spec),
            (kind, "DELETE", path, json!({})),
            (kind, "POST", self.objects.to_owned(), self.named("more")),
        ]
    }
}

fn policies() -> Vec<Policy> {
    let condition = json!({
        "type": "ferrule.io/Realized", "status": "True", "reason": "Realized", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let conditions = json!({ "conditions": [condition] });
    let antrea = json!({
        "phase": "Realized", "observedGeneration": 1, "currentNodesRealized": 1,
        "desiredNodesRealized": 1,
    });
    let of_priority = |priority: u16| json!({ "tier": "Admin", "priority": priority, "subject": { "namespaces": {} } });
    let applied =
        |priority: u16, to: &str| json!({ "priority": priority, "appliedTo": [{ to: {} }] });
    vec![
        Policy {
            kind: "ClusterNetworkPolicy",
            version: "policy.networking.k8s.io/v1alpha2",
            objects: "/apis/policy.networking.k8s.io/v1alpha2/clusternetworkpolicies",
            spec: of_priority(5),
            changed: of_priority(6),
            status: conditions.clone(),
        },
        Policy {
            kind: "ClusterNetworkPolicy",
            version: "networking.k8s.aws/v1alpha1",
            objects: "/apis/networking.k8s.aws/v1alpha1/clusternetworkpolicies",
            spec: of_priority(5),
            changed: of_priority(6),
            status: conditions.clone(),
        },
        Policy {
            kind: "ApplicationNetworkPolicy",
            version: "networking.k8s.aws/v1alpha1",
            objects: "/apis/networking.k8s.aws/v1alpha1/namespaces/default/applicationnetworkpolicies",
            spec: json!({ "podSelector": {}, "policyTypes": ["Ingress"] }),
            changed: json!({ "podSelector": {}, "policyTypes": ["Egress"] }),
            status: conditions,
        },
        Policy {
            kind: "ClusterNetworkPolicy",
            version: "crd.antrea.io/v1beta1",
            objects: "/apis/crd.antrea.io/v1beta1/clusternetworkpolicies",
            spec: applied(5, "namespaceSelector"),
            changed: applied(6, "namespaceSelector"),
            status: antrea.clone(),
        },
        Policy {
            kind: "NetworkPolicy",
            version: "crd.antrea.io/v1beta1",
            objects: "/apis/crd.antrea.io/v1beta1/namespaces/default/networkpolicies",
            spec: applied(5, "podSelector"),
            changed: applied(6, "podSelector"),
            status: antrea,
        },
    ]
}

/// Returns objects of policy whose status the controller does not write.
fn without_status() -> Vec<Policy> {
    let policy = |kind, version, objects, spec, changed| Policy {
        kind,
        version,
        objects,
        spec,
        changed,
        status: Value::Null,
    };
    let antrea = "crd.antrea.io/v1beta1";
    vec![
        policy(
            "NetworkPolicy",
            "networking.k8s.io/v1",
            "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies",
            json!({ "podSelector": {}, "policyTypes": ["Ingress"] }),
            json!({ "podSelector": {}, "policyTypes": ["Egress"] }),
        ),
        policy(
            "Tier",
            antrea,
            "/apis/crd.antrea.io/v1beta1/tiers",
            json!({ "priority": 5 }),
            json!({ "priority": 6 }),
        ),
        policy(
            "ClusterGroup",
            antrea,
            "/apis/crd.antrea.io/v1beta1/clustergroups",
            json!({ "namespaceSelector": {} }),
            json!({ "podSelector": {} }),
        ),
        policy(
            "Group",
            antrea,
            "/apis/crd.antrea.io/v1beta1/namespaces/default/groups",
            json!({ "podSelector": {} }),
            json!({ "podSelector": { "matchLabels": { "a": "b" } } }),
        ),
    ]
}

/// Returns writes of the progress of policies: the status of each kind that has one, and the object for NetworkPolicy.
fn progress() -> Vec<Row> {
    let status = |policy: Policy| {
        let path = format!("{}/status", policy.path());
        (policy.version, "PUT", path, json!({ "status": policy.status }))
    };
    let realizations =
        "/apis/policy.ferrule.io/v1alpha1/namespaces/default/networkpolicyrealizations";
    let progress = |desired: u32| {
        json!({
            "phase": "Realizing", "message": "", "failures": [], "failingNodes": 0, "silentNodes": 0,
            "currentNodesRealized": 0, "desiredNodesRealized": desired, "observedGeneration": 1,
        })
    };
    let owner = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "name": "p", "uid": "1",
        "controller": true, "blockOwnerDeletion": true,
    });
    let object = json!({
        "apiVersion": "policy.ferrule.io/v1alpha1", "kind": "NetworkPolicyRealization",
        "metadata": { "name": "p", "ownerReferences": [owner] }, "status": progress(1),
    });
    let own = format!("{realizations}/p");
    let mut rows: Vec<Row> = policies().into_iter().map(status).collect();
    rows.extend([
        row("a realization", "POST", realizations, object),
        row("its progress", "PUT", &own, json!({ "status": progress(2) })),
        row("its end", "DELETE", &own, json!({})),
    ]);
    rows
}

/// Returns writes of a replica in normal operation.
fn own_writes() -> Vec<Row> {
    let endpoint = json!({
        "endpoints": [{ "addresses": ["10.0.0.7"], "conditions": { "ready": true } }],
        "ports": [{ "name": "https", "protocol": "TCP", "port": 61692 }],
    });
    let lease = json!({
        "metadata": { "annotations": { "ferrule.io/reports-to": "10.0.0.7:61690" } },
        "spec": { "holderIdentity": "a", "leaseDurationSeconds": 15 },
    });
    let mut rows = vec![
        row("certificates", "PUT", SECRET, json!({ "data": { "authority.json": "e30=" } })),
        row("the authority", "PUT", MAP, json!({ "data": { "ca.crt": "-----BEGIN" } })),
        row("the Lease", "PUT", LEASE, lease),
        row("its address", "PATCH", SLICE, endpoint),
        row("the API's authority", "PATCH", SERVICE, json!({ "spec": { "caBundle": ca() } })),
    ];
    rows.extend(progress());
    rows
}

/// A PEM certificate in base64, as the API server requires.
fn ca() -> String {
    let certificate = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap().cert.pem();
    BASE64_STANDARD.encode(certificate)
}

fn slice(name: &str, service: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": { "name": name, "labels": { "kubernetes.io/service-name": service } },
        "addressType": "IPv4",
        "endpoints": [{ "addresses": ["10.0.0.66"] }],
        "ports": [{ "name": "dns", "protocol": "UDP", "port": 53 }],
    })
}

/// Returns new objects. A role cannot limit `create` to a name, so the account must not have this right at all.
fn creations() -> Vec<Row> {
    let secrets = format!("{SYSTEM}/secrets");
    let named = |version: &str, kind: &str, name: &str| json!({ "apiVersion": version, "kind": kind, "metadata": { "name": name } });
    let mut token = named("v1", "Secret", "token");
    token["type"] = json!("kubernetes.io/service-account-token");
    token["metadata"]["annotations"] = json!({ "kubernetes.io/service-account.name": "ferrule" });
    let mut service = named("apiregistration.k8s.io/v1", "APIService", "v1.free.example");
    service["spec"] = json!({
        "group": "free.example", "version": "v1", "groupPriorityMinimum": 1, "versionPriority": 1,
        "insecureSkipTLSVerify": true,
        "service": { "namespace": "kube-system", "name": "ferrule-controller-view" },
    });
    vec![
        row("an EndpointSlice for DNS", "POST", SLICES, slice("dns", "kube-dns")),
        row(
            "an Endpoints object for DNS",
            "POST",
            &format!("{SYSTEM}/endpoints"),
            named("v1", "Endpoints", "kube-dns"),
        ),
        row("a token Secret", "POST", &secrets, token),
        row("an Opaque Secret", "POST", &secrets, named("v1", "Secret", "more")),
        row(
            "a ConfigMap",
            "POST",
            &format!("{SYSTEM}/configmaps"),
            named("v1", "ConfigMap", "more"),
        ),
        row("a Lease", "POST", LEASES, named("coordination.k8s.io/v1", "Lease", "kube-scheduler")),
        row("a foreign APIService", "POST", SERVICES, service),
    ]
}

/// Returns changes of existing objects that are no part of the controller's work.
fn changes() -> Vec<Row> {
    let label = json!({ "metadata": { "labels": { "kubernetes.io/service-name": "kube-dns" } } });
    let finalizer = json!({ "metadata": { "finalizers": ["evil.example/held"] } });
    let owner = json!({ "metadata": { "ownerReferences": [{
        "apiVersion": "v1", "kind": "Namespace", "name": "gone", "uid": "1",
    }]}});
    let annotation = json!({ "metadata": { "annotations": { "evil.example/a": "" } } });
    let service = |part: Value| json!({ "spec": part });
    let two =
        json!({ "endpoints": [{ "addresses": ["10.0.0.7"] }, { "addresses": ["10.0.0.8"] }] });
    let addresses = json!({ "endpoints": [{ "addresses": ["10.0.0.7", "10.0.0.8"] }] });
    let port = |protocol: &str, port: u16| json!({ "ports": [{ "name": "https", "protocol": protocol, "port": port }] });
    vec![
        row("its EndpointSlice for DNS", "PATCH", SLICE, label.clone()),
        row("two endpoints", "PATCH", SLICE, two),
        row("two addresses of an endpoint", "PATCH", SLICE, addresses),
        row("another protocol", "PATCH", SLICE, port("UDP", 61692)),
        row("another port of its EndpointSlice", "PATCH", SLICE, port("TCP", 6443)),
        row(
            "another EndpointSlice",
            "PATCH",
            &format!("{SLICES}/others"),
            json!({ "endpoints": [] }),
        ),
        row(
            "another Secret",
            "PATCH",
            &format!("{SYSTEM}/secrets/others"),
            json!({ "data": { "a": "" } }),
        ),
        row(
            "another ConfigMap",
            "PATCH",
            &format!("{SYSTEM}/configmaps/others"),
            json!({ "data": { "a": "" } }),
        ),
        row("more in its ConfigMap", "PATCH", MAP, json!({ "data": { "a": "" } })),
        row("its ConfigMap's labels", "PATCH", MAP, label),
        row("its Secret's finalizers", "PATCH", SECRET, finalizer),
        row("its Lease's owners", "PATCH", LEASE, owner),
        row("its Secret's annotations", "PATCH", SECRET, annotation),
        row("deletion of its Secret", "DELETE", SECRET, json!({})),
        row(
            "another APIService",
            "PATCH",
            &format!("{SERVICES}/v1.apps"),
            service(json!({ "groupPriorityMinimum": 1 })),
        ),
        row(
            "another service",
            "PATCH",
            SERVICE,
            service(json!({ "service": { "name": "kube-dns" } })),
        ),
        row("another port", "PATCH", SERVICE, service(json!({ "service": { "port": 8443 } }))),
        row(
            "no verification",
            "PATCH",
            SERVICE,
            service(json!({ "insecureSkipTLSVerify": true, "caBundle": null })),
        ),
        row(
            "a higher priority",
            "PATCH",
            SERVICE,
            service(json!({ "groupPriorityMinimum": 20_000 })),
        ),
    ]
}

async fn must(client: &Client, verb: &str, path: &str, body: &Value) -> Value {
    ask(client, verb, path, body).await.unwrap_or_else(|error| panic!("{verb} {path}: {error}"))
}

/// Replaces the fields of an object, as `PUT` does.
async fn write(client: &Client, (what, verb, path, body): &Row) -> Result<Value, String> {
    let mut object = body.clone();
    if *verb == "PUT" {
        // The account may update a status, but reads the whole object.
        let whole = path.strip_suffix("/status").unwrap_or(path);
        object = ask(client, "GET", whole, &json!({})).await.map_err(|error| error.to_string())?;
        for (field, value) in body.as_object().unwrap() {
            if field == "metadata" {
                // Helm's annotations stay.
                for (key, text) in value["annotations"].as_object().unwrap() {
                    object["metadata"]["annotations"][key] = text.clone();
                }
            } else {
                object[field] = value.clone();
            }
        }
    }
    ask(client, verb, path, &object).await.map_err(|error| format!("{what}: {error}"))
}

async fn a_write_of_a_status_changes_no_spec(account: &Client) {
    for policy in policies() {
        let path = policy.path();
        let before = must(account, "GET", &path, &json!({})).await;
        let mut object = before.clone();
        object["spec"] = policy.changed.clone();
        object["status"] = policy.status.clone();
        must(account, "PUT", &format!("{path}/status"), &object).await;
        let after = must(account, "GET", &path, &json!({})).await;
        assert_eq!(after["spec"], before["spec"], "{path}");
        assert_eq!(after["status"], policy.status, "{path}");
    }
}

/// Returns the rows whose refusal does not contain this text.
async fn not_refused(client: &Client, rows: Vec<Row>, by: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    for row in rows {
        match write(client, &row).await {
            Err(error) if error.contains(by) => {}
            other => wrong.push(format!("{}: {other:?}", row.0)),
        }
    }
    wrong
}

#[tokio::test]
async fn the_controllers_account_writes_its_own_objects_only() {
    let chart = Chart::of_this_clone().unwrap();
    let cluster = Cluster::start(&ClusterSpec::default()).unwrap();
    let admin = cluster.client().await.unwrap();
    let values = json!({
        "enableNetworkPolicy": true, "controller": { "view": true },
        "crds": { "upstreamPolicies": true, "antreaPolicies": true, "awsPolicies": true },
    });
    chart.command(cluster.kubeconfig(), "install", &[], Some(&values)).unwrap();
    must(&admin, "POST", SLICES, &slice("others", "kube-dns")).await;
    for (kind, path) in [("Secret", "secrets"), ("ConfigMap", "configmaps")] {
        let object = json!({ "apiVersion": "v1", "kind": kind, "metadata": { "name": "others" } });
        must(&admin, "POST", &format!("{SYSTEM}/{path}"), &object).await;
    }
    let of_authors: Vec<Policy> = policies().into_iter().chain(without_status()).collect();
    for policy in &of_authors {
        eventually_async("a policy of each kind", PATIENCE, async || {
            ask(&admin, "POST", policy.objects, &policy.named("p")).await.ok()
        })
        .await;
    }
    let account = as_account(&cluster, &admin, "ferrule-controller", None).await.unwrap();

    // The roles of the chart are enough for its work, and include no right to create.
    for row in own_writes() {
        write(&account, &row).await.unwrap();
    }
    let wrong = not_refused(&account, creations(), "cannot create resource").await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let authors = || of_authors.iter().flat_map(Policy::changes).collect::<Vec<Row>>();
    let wrong = not_refused(&account, authors(), "\" cannot ").await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    a_write_of_a_status_changes_no_spec(&account).await;

    // With all rights of RBAC, each refusal is from the admission policy.
    let every = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": "every-right" },
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin",
        },
        "subjects": [{
            "kind": "ServiceAccount", "name": "ferrule-controller", "namespace": "kube-system",
        }],
    });
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    must(&admin, "POST", bindings, &every).await;
    let probe = format!("{SYSTEM}/configmaps/others?dryRun=All");
    eventually_async("the policy and the rights to be in force", PATIENCE, async || {
        let refused = ask(&account, "PATCH", &probe, &json!({ "data": { "a": "" } })).await;
        refused.err().filter(|error| error.to_string().contains("ferrule-controller-scope"))
    })
    .await;
    for row in own_writes() {
        write(&account, &row).await.unwrap();
    }
    let rows = [creations(), changes(), authors()].concat();
    let wrong = not_refused(&account, rows, "ferrule-controller-scope").await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    // The policy does not restrict other accounts.
    must(&admin, "PATCH", &format!("{SYSTEM}/configmaps/others"), &json!({ "data": { "a": "" } }))
        .await;
}
