//! Bad input of Services on a cluster without kube-proxy: each has one message with its fix, and other Services keep working.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test panics and prints its progress"
)]

use anyhow::{Result, ensure};
use lab_kubernetes::Program;
use serde_json::{Value, json};
use std::{
    process::{Child, Stdio},
    time::Duration,
};
use tests_eventually::within;
use tests_lab::wait_for;
use tests_whole::{Client, Installed, LaneInputs, NODE_PODS, Pod};

const PATIENCE: Duration = Duration::from_secs(120);
const NODES: [&str; 2] = ["node1", "node2"];
/// An address of no host.
const EXTERNAL: &str = "198.51.100.7";
const WEB_PORT: u16 = 30_080;
/// At which a process of a node listens.
const USED_PORT: u16 = 30_090;
const DATAGRAM_PORT: u16 = 30_082;
const HEALTH_PORT: u16 = 10_256;

#[test]
fn bad_services_have_a_message_each_and_others_keep_working() {
    let name = "bad_services_have_a_message_each_and_others_keep_working";
    let Some(inputs) = LaneInputs::or_skip(name) else { return };
    let cluster = Installed::without_proxy(inputs, "badservices", 2, &[]).unwrap();
    let other_proxy = Server::start(&cluster, HEALTH_PORT);
    cluster.install_with_services().unwrap();
    cluster.open_to_clients().unwrap();
    let pods = cluster.probes("web").unwrap();
    let ports = json!([{ "port": 7, "targetPort": 8081, "nodePort": WEB_PORT }]);
    let node_port = json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": ports });
    let address = create(&cluster, "web", &node_port);
    let all = Judge { cluster: &cluster, pods, web: address };
    all.others_work("at the start");

    all.another_program_at_the_health_port(other_proxy);
    all.two_services_with_one_address();
    all.a_process_at_a_node_port();
    all.endpoints_that_no_client_can_reach();
    all.no_endpoint_and_twenty_thousand();
    all.source_ranges();
    all.hints_of_an_unknown_zone();
    all.exhausted_source_ports();
    all.no_cgroup_of_version_2();
    all.the_api_server_behind_its_service();
}

/// The Service of a test, and another one that keeps working.
struct Judge<'a> {
    cluster: &'a Installed,
    /// One on each node.
    pods: Vec<Pod>,
    /// The cluster IP of the other Service.
    web: String,
}

impl Judge<'_> {
    /// Pods, processes of nodes and clients outside reach the Service `web`.
    fn others_work(&self, when: &str) {
        println!("other Services {when}");
        let lab = self.cluster.lab();
        let at_cluster_ip = format!("{}:7", self.web);
        let mut clients: Vec<(Client<'_>, String)> =
            self.pods.iter().map(|pod| (Client::Pod(pod), at_cluster_ip.clone())).collect();
        for node in NODES {
            let public = lab.node(node).unwrap()["public_address"].clone();
            clients.push((Client::Node(lab, node), at_cluster_ip.clone()));
            let at_node = format!("{}:{WEB_PORT}", public.as_str().unwrap());
            clients.push((Client::Outside(lab), at_node));
        }
        for (number, (client, to)) in clients.into_iter().enumerate() {
            answered(client, &to, &format!("client {number} of web {when}"));
        }
    }

    /// The log of a node's agent.
    fn log(&self, node: &str) -> Result<String> {
        let agents = self.cluster.pods("kube-system", NODE_PODS)?;
        let agent = agents.iter().find(|pod| pod.node == node);
        let agent = agent.ok_or_else(|| anyhow::anyhow!("no agent on {node}"))?;
        self.cluster.kubectl(&["-n", "kube-system", "logs", &agent.name, "-c", "agent"])
    }

    /// Waits until a line of the log of a node's agent has all words.
    fn logged(&self, node: &str, words: &[&str]) {
        within(&format!("a line with {words:?} in the log of {node}"), PATIENCE, || {
            let log = self.log(node)?;
            let has_all = |line: &str| words.iter().all(|word| line.contains(word));
            ensure!(log.lines().any(has_all), "{log}");
            Ok(())
        })
        .unwrap();
    }

    /// Waits until `ferrule service` prints all texts for a Service, seen from node1.
    fn reported(&self, service: &str, texts: &[&str]) {
        let words = ["service", &format!("default/{service}"), "--node", "node1"];
        within(&format!("the report about {service}"), PATIENCE, || {
            let output = self.cluster.ferrule(&words)?;
            let printed = String::from_utf8_lossy(&output.stdout).into_owned();
            ensure!(texts.iter().all(|text| printed.contains(text)), "no {texts:?} in {printed}");
            Ok(())
        })
        .unwrap();
    }

    /// The API server refuses an object with this text.
    fn refused(&self, object: Value, text: &str) {
        let error = self.cluster.cluster().apply(&[object]).unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
    }

    fn another_program_at_the_health_port(&self, other: Server) {
        println!("another program at the port of the node's health");
        let fix = "remove kube-proxy, or set FERRULE_AGENT_HEALTHZ to another address";
        self.logged("node1", &[fix, &format!(":{HEALTH_PORT}")]);
        let page = || self.cluster.lab().get("node1", HEALTH_PORT, "/healthz");
        assert!(!page().unwrap().contains("lastUpdated"), "the other program answers");
        self.others_work("beside another program at the health port");
        other.stop();
        within("the health of the node", PATIENCE, || {
            let page = page()?;
            ensure!(page.contains("lastUpdated"), "{page}");
            Ok(())
        })
        .unwrap();
        self.logged("node1", &["health checks are answered now"]);
    }

    fn two_services_with_one_address(&self) {
        println!("two Services with one external address, and with one node port");
        let spec = json!({
            "selector": { "app": "web" }, "externalIPs": [EXTERNAL],
            "ports": [{ "port": 7, "targetPort": 8081 }],
        });
        for name in ["first", "second"] {
            create(self.cluster, name, &spec);
        }
        let at = format!("{EXTERNAL}:7");
        let trouble = format!("TROUBLE  {at}/TCP belongs to Service default/first");
        self.reported("second", &[&trouble, "use another address or port in one of the Services"]);
        for node in NODES {
            let fix = "another Service has it; use another one in one of the two Services";
            self.logged(node, &["default/second", &format!("{at}/TCP"), "default/first", fix]);
        }
        answered(Client::Pod(&self.pods[0]), &at, "the older Service");

        let mut thief = spec.clone();
        thief["externalIPs"] = json!([self.web]);
        create(self.cluster, "thief", &thief);
        let trouble = format!("TROUBLE  {}:7/TCP belongs to Service default/web", self.web);
        self.reported("thief", &[&trouble]);
        self.logged("node1", &["default/thief", "default/web", "another Service has it"]);

        let ports = json!([{ "port": 7, "targetPort": 8081, "nodePort": WEB_PORT }]);
        let same = json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": ports });
        self.refused(service("same-port", &same), "provided port is already allocated");
        self.others_work("after two Services with one address");
        for name in ["first", "second", "thief"] {
            self.cluster.kubectl(&["-n", "default", "delete", "service", name]).unwrap();
        }
    }

    fn a_process_at_a_node_port(&self) {
        println!("a process at a node port");
        let process = Server::start(self.cluster, USED_PORT);
        let ports = json!([{ "port": 80, "targetPort": 8080, "nodePort": USED_PORT }]);
        let spec = json!({ "type": "NodePort", "selector": { "app": "web" }, "ports": ports });
        create(self.cluster, "used", &spec);
        let fix = "give the process or the Service another port";
        self.logged("node1", &["default/used", &USED_PORT.to_string(), fix]);
        // The Service has the clients.
        within("an answer of a pod at the node port", PATIENCE, || {
            let page = self.cluster.lab().get("node1", USED_PORT, "/")?;
            ensure!(self.pods.iter().any(|pod| page.contains(&pod.name)), "{page}");
            Ok(())
        })
        .unwrap();
        self.others_work("beside a process at a node port");
        process.stop();
        self.cluster.kubectl(&["-n", "default", "delete", "service", "used"]).unwrap();
    }

    fn endpoints_that_no_client_can_reach(&self) {
        println!("endpoints of the other family, of loopback, and of the node");
        create(self.cluster, "odd", &json!({ "ports": [{ "port": 7, "targetPort": 8091 }] }));
        self.refused(slice("odd", "v6", 8091, &json!([{ "addresses": ["fd00::1"] }])), "IPv4");
        let loopback = json!([{ "addresses": ["127.0.0.1"] }]);
        self.refused(slice("odd", "loopback", 8091, &loopback), "loopback");
        self.others_work("after endpoints that the API server refuses");
        // The probe echoes lines at the next port.
        let process = Server::start(self.cluster, 8090);
        let node = self.cluster.cluster().json(&["get", "node", "node1"]).unwrap();
        let addresses = node["status"]["addresses"].as_array().unwrap();
        let own = addresses.iter().find(|of| of["type"] == "InternalIP").unwrap();
        let endpoint = json!([{ "addresses": [own["address"]], "nodeName": "node1" }]);
        self.cluster.cluster().apply(&[slice("odd", "node", 8091, &endpoint)]).unwrap();
        let at = format!("{}:7", self.address_of("odd"));
        let lab = self.cluster.lab();
        for (number, client) in self.pods.iter().map(Client::Pod).enumerate() {
            answered(client, &at, &format!("the node's process to pod {number}"));
        }
        for node in NODES {
            answered(Client::Node(lab, node), &at, &format!("the process to {node}"));
        }
        self.others_work("beside an endpoint of the node");
        process.stop();
        self.cluster.kubectl(&["-n", "default", "delete", "service", "odd"]).unwrap();
    }

    fn no_endpoint_and_twenty_thousand(&self) {
        println!("no endpoint");
        let ports = json!([{ "port": 7, "targetPort": 8081 }]);
        let empty = json!({ "selector": { "app": "none" }, "ports": ports });
        let at = format!("{}:7", create(self.cluster, "empty", &empty));
        let texts =
            ["TROUBLE  the EndpointSlices of the Service have no endpoint", "check the selector"];
        self.reported("empty", &texts);
        within("a refused connection", PATIENCE, || {
            let asked = self.cluster.cluster().probe(&self.pods[0].name, &["tcp", &at]);
            let why = format!("{:#}", asked.err().unwrap_or_else(|| anyhow::anyhow!("an answer")));
            ensure!(why.contains("connection refused"), "{why}");
            Ok(())
        })
        .unwrap();
        println!("20,000 endpoints");
        create(self.cluster, "many", &json!({ "ports": ports }));
        for number in 0..20 {
            let endpoint = |at: u32| json!({ "addresses": [format!("10.{}.{}.{}", 200 + number, at / 250, at % 250 + 1)] });
            let endpoints: Vec<Value> = (0..1_000).map(endpoint).collect();
            let slice = slice("many", &number.to_string(), 8081, &json!(endpoints));
            self.cluster.cluster().apply(&[slice]).unwrap();
        }
        let left = "11809 endpoints are not used: a table has 8191 places";
        self.reported("many", &[&format!("TROUBLE  {left}"), "split the Service"]);
        for node in NODES {
            self.logged(node, &["default/many", &format!("{left}; split the Service")]);
        }
        self.others_work("beside 20,000 endpoints");
        for name in ["empty", "many"] {
            self.cluster.kubectl(&["-n", "default", "delete", "service", name]).unwrap();
        }
        self.cluster
            .kubectl(&[
                "-n",
                "default",
                "delete",
                "endpointslice",
                "-l",
                "kubernetes.io/service-name=many",
            ])
            .unwrap();
    }

    fn source_ranges(&self) {
        println!("source ranges that do not parse");
        let ports = json!([{ "port": 7, "targetPort": 8081 }]);
        let spec = json!({ "type": "LoadBalancer", "selector": { "app": "web" }, "ports": ports });
        let mut ranged = service("ranged", &spec);
        ranged["spec"]["loadBalancerSourceRanges"] = json!(["10.0.0.0/33"]);
        self.refused(ranged, "10.0.0.0/33");
        let mut annotated = service("ranged", &spec);
        annotated["metadata"]["annotations"] = json!({
            "service.beta.kubernetes.io/load-balancer-source-ranges": "10.0.0.0/33",
        });
        self.refused(annotated, "10.0.0.0/33");
        self.others_work("after a source range that the API server refuses");
    }

    fn hints_of_an_unknown_zone(&self) {
        println!("hints of an unknown zone");
        create(self.cluster, "hinted", &json!({ "ports": [{ "port": 7, "targetPort": 8081 }] }));
        let hinted = |pod: &Pod| {
            let hints = json!({ "forZones": [{ "name": "nowhere" }] });
            json!({ "addresses": [pod.address], "nodeName": pod.node, "hints": hints })
        };
        let endpoints: Vec<Value> = self.pods.iter().map(hinted).collect();
        let hinted = slice("hinted", "1", 8081, &json!(endpoints));
        self.cluster.cluster().apply(&[hinted]).unwrap();
        let texts = [
            "notice   hints of endpoints are not used: they are for nowhere, and node1 ",
            "kubectl get nodes -L topology.kubernetes.io/zone",
        ];
        self.reported("hinted", &texts);
        let at = format!("{}:7", self.address_of("hinted"));
        for pod in &self.pods {
            answered(Client::Pod(pod), &at, "the Service with hints");
        }
        self.others_work("beside hints of an unknown zone");
        self.cluster.kubectl(&["-n", "default", "delete", "service", "hinted"]).unwrap();
    }

    fn exhausted_source_ports(&self) {
        println!("more clients outside than source ports");
        let port =
            json!({ "port": 8, "targetPort": 8082, "protocol": "UDP", "nodePort": DATAGRAM_PORT });
        create(self.cluster, "datagrams", &json!({ "type": "NodePort", "ports": [port] }));
        let far = &self.pods[1];
        let endpoint = json!([{ "addresses": [far.address], "nodeName": far.node }]);
        let mut slice = slice("datagrams", "1", 8082, &endpoint);
        slice["ports"][0]["protocol"] = json!("UDP");
        self.cluster.cluster().apply(&[slice]).unwrap();
        let lab = self.cluster.lab();
        let public = lab.node("node1").unwrap()["public_address"].clone();
        let to = format!("{}/{DATAGRAM_PORT}", public.as_str().unwrap());
        wait_for("the Service of datagrams", PATIENCE, || {
            let read = format!("exec 3<>/dev/udp/{to}; echo a >&3; timeout 2 head -1 <&3");
            Ok(lab.run(&["client", "exec", "--", "bash", "-c", &read])?.contains(&far.name))
        })
        .unwrap();
        // Each datagram is of another client.
        let flood = format!("for port in {{1..9000}}; do echo a >/dev/udp/{to}; done");
        within("a line about source ports", PATIENCE, || {
            lab.run(&["client", "exec", "--", "bash", "-c", &flood])?;
            let log = self.log("node1")?;
            ensure!(
                log.contains("all source ports toward this backend are in use; use more"),
                "{log}"
            );
            Ok(())
        })
        .unwrap();
        self.others_work("beside exhausted source ports");
        self.cluster.kubectl(&["-n", "default", "delete", "service", "datagrams"]).unwrap();
    }

    fn no_cgroup_of_version_2(&self) {
        println!("without cgroup v2");
        let set = |setting: &str| {
            let to =
                ["-n", "kube-system", "set", "env", "daemonset/ferrule", "-c", "agent", setting];
            self.cluster.kubectl(&to).unwrap();
            self.cluster.rolled_out().unwrap();
        };
        set("FERRULE_AGENT_CGROUP=/etc");
        let fix = "mount cgroup v2 there, or set FERRULE_AGENT_CGROUP to its root";
        for node in NODES {
            self.logged(
                node,
                &["cannot serve processes of the node", "/etc has no cgroup v2", fix],
            );
        }
        self.reported("web", &["Services of the node are not in force"]);
        for pod in &self.pods {
            answered(Client::Pod(pod), &format!("{}:7", self.web), "a pod without cgroup v2");
        }
        set("FERRULE_AGENT_CGROUP=/host/sys/fs/cgroup");
        self.others_work("with cgroup v2 again");
    }

    fn the_api_server_behind_its_service(&self) {
        println!("the Service of the API server as CLUSTER_ENDPOINT");
        let mut sets = self.cluster.services("ebpf").unwrap();
        sets.retain(|set| !set.starts_with("env.CLUSTER_ENDPOINT="));
        sets.push(format!("env.CLUSTER_ENDPOINT=https://{}", self.address_of("kubernetes")));
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        self.cluster.upgrade(&sets).unwrap();
        let fix = "is the Service of the API server, which the nodes themselves serve; set it to the API server's own URL";
        within("the refused setting in a log", PATIENCE, || {
            let logs = NODES.map(|node| self.log(node).unwrap_or_default());
            ensure!(logs.iter().any(|log| log.contains(fix)), "{logs:?}");
            Ok(())
        })
        .unwrap();
        self.others_work("on nodes whose agent refuses its settings");
        self.cluster.install_with_services().unwrap();
        self.others_work("at the end");
    }

    fn address_of(&self, name: &str) -> String {
        address_of(self.cluster, name)
    }
}

/// Waits until a server answers a client.
fn answered(client: Client<'_>, to: &str, case: &str) {
    wait_for(&format!("an answer at {to}: {case}"), PATIENCE, || client.is_answered(to)).unwrap();
}

fn service(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": { "name": name, "namespace": "default" }, "spec": spec,
    })
}

/// Creates a Service and returns its cluster IP.
fn create(cluster: &Installed, name: &str, spec: &Value) -> String {
    cluster.cluster().apply(&[service(name, spec)]).unwrap();
    address_of(cluster, name)
}

fn address_of(cluster: &Installed, name: &str) -> String {
    let service = cluster.cluster().json(&["-n", "default", "get", "service", name]).unwrap();
    service["spec"]["clusterIP"].as_str().unwrap().to_owned()
}

/// A slice of a Service without a selector.
fn slice(service: &str, name: &str, port: u16, endpoints: &Value) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": format!("{service}-{name}"), "namespace": "default",
            "labels": { "kubernetes.io/service-name": service },
        },
        "ports": [{ "name": "", "port": port, "protocol": "TCP" }], "endpoints": endpoints,
    })
}

/// A process of node1 that serves HTTP at a port, and echoes lines at the next one.
struct Server(Child);

impl Server {
    fn start(cluster: &Installed, port: u16) -> Self {
        let lab = cluster.lab();
        let probe = Program::probe().unwrap();
        let probe = probe.path().to_str().unwrap().to_owned();
        let port_text = port.to_string();
        let mut command =
            lab.command(&["node", "exec", "node1", "--", &probe, "serve", &port_text]);
        let server = Self(command.stdout(Stdio::null()).spawn().unwrap());
        wait_for("a process of node1", PATIENCE, || Ok(lab.get("node1", port, "/").is_ok()))
            .unwrap();
        server
    }

    fn stop(self) {}
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
