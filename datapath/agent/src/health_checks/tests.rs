#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use service_core::HealthCheck;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// A running server, and the state that it answers from.
struct Running {
    health: watch::Sender<ServiceHealth>,
    metrics: Arc<Metrics>,
    clock: Clock,
    host: Ipv4Addr,
    _tasks: JoinSet<()>,
}

impl Running {
    /// Each test has a loopback address of its own.
    fn start(host: Ipv4Addr, at: Option<SocketAddr>) -> Self {
        let (health, receiver) = watch::channel(ServiceHealth::default());
        let (clock, metrics) = (Clock::start(), Arc::new(Metrics::new().unwrap()));
        let server = HealthServer {
            health: receiver,
            clock,
            at,
            hosts: Hosts { v4: host, v6: Ipv6Addr::LOCALHOST },
            metrics: Arc::clone(&metrics),
            pause: Duration::from_millis(20),
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(server.run());
        Self { health, metrics, clock, host, _tasks: tasks }
    }

    /// Puts these checks into force: the port, the name and the number of endpoints of each Service.
    fn apply(&self, checks: &[(u16, &str, usize)]) {
        let check = |(port, name, endpoints): &(u16, &str, usize)| {
            let service = ObjectName::new("shop", *name);
            let at = HealthPort { family: Family::V4, port: *port };
            (at, HealthCheck { service, endpoints: *endpoints })
        };
        let by_port = checks.iter().map(check).collect();
        let checks = Arc::new(HealthChecks { by_port, ..HealthChecks::default() });
        let now = self.clock.now();
        self.health.send_if_modified(|of| of.finish(Some(checks), now));
    }

    /// The answer of a port once it has this status.
    async fn answer(&self, port: u16, path: &str, status: u16) -> String {
        let line = format!("HTTP/1.1 {status} ");
        let answered = async {
            loop {
                match fetch(SocketAddr::new(self.host.into(), port), path).await {
                    Some(answer) if answer.starts_with(&line) => return answer,
                    Some(_) | None => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(PATIENCE, answered).await.unwrap()
    }

    /// Waits until no process listens at the port.
    async fn closed(&self, port: u16) {
        let closed = async {
            while TcpStream::connect((self.host, port)).await.is_ok() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, closed).await.unwrap();
    }

    /// Waits until the metric has this value.
    async fn failing(&self, count: usize) {
        let line = format!("\nferrule_agent_failing_health_ports {count}\n");
        let failing = async {
            while !self.metrics.page(None).contains(&line) {
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, failing).await.unwrap();
    }
}

/// An answer with its head.
async fn fetch(at: SocketAddr, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect(at).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    Some(answer)
}

/// A listener of another process.
async fn taken(host: Ipv4Addr) -> (TcpListener, u16) {
    let listener = TcpListener::bind((host, 0)).await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

async fn free(host: Ipv4Addr) -> u16 {
    taken(host).await.1
}

#[tokio::test]
async fn a_port_answers_for_its_service_until_the_service_is_gone() {
    let host = Ipv4Addr::new(127, 0, 91, 1);
    let (web, api) = (free(host).await, free(host).await);
    let running = Running::start(host, None);
    running.apply(&[(web, "web", 2), (api, "api", 0)]);
    let answer = running.answer(web, "/", 200).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let head = head.to_ascii_lowercase();
    for line in [
        "content-type: application/json",
        "x-content-type-options: nosniff",
        "x-load-balancing-endpoint-weight: 2",
    ] {
        assert!(head.lines().any(|of| of == line), "{line}: {head}");
    }
    let expected = "{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": \
                    2,\n\t\"serviceProxyHealthy\": true\n}";
    assert_eq!(body, expected);
    // Load balancers may be configured with any path.
    running.answer(web, "/healthz", 200).await;
    let empty = running.answer(api, "/", 503).await;
    assert!(empty.contains("\"localEndpoints\": 0"), "{empty}");

    running.apply(&[(web, "web", 0), (api, "api", 1)]);
    let empty = running.answer(web, "/", 503).await;
    assert!(empty.to_ascii_lowercase().contains("x-load-balancing-endpoint-weight: 0"), "{empty}");
    running.answer(api, "/", 200).await;

    running.apply(&[(api, "api", 1)]);
    running.closed(web).await;
    running.answer(api, "/", 200).await;
    running.failing(0).await;
    // The port is free for another process.
    TcpListener::bind((host, web)).await.unwrap();
}

#[tokio::test]
async fn a_port_in_use_does_not_affect_others_and_is_served_when_it_is_free() {
    let host = Ipv4Addr::new(127, 0, 91, 2);
    let (other, web) = taken(host).await;
    let api = free(host).await;
    let running = Running::start(host, None);
    running.apply(&[(web, "web", 1), (api, "api", 1)]);
    running.answer(api, "/", 200).await;
    running.failing(1).await;
    drop(other);
    running.answer(web, "/", 200).await;
    running.failing(0).await;

    // A port that is no longer wanted is not failing either.
    let (_other, third) = taken(host).await;
    running.apply(&[(third, "web", 1), (api, "api", 1)]);
    running.failing(1).await;
    running.apply(&[(api, "api", 1)]);
    running.failing(0).await;
}

#[tokio::test]
async fn a_port_of_two_services_counts_as_failing() {
    let host = Ipv4Addr::new(127, 0, 91, 3);
    let web = free(host).await;
    let running = Running::start(host, None);
    running.apply(&[(web, "web", 1)]);
    running.answer(web, "/", 200).await;
    running.health.send_modify(|of| {
        Arc::make_mut(&mut of.checks).refused.insert(ObjectName::new("shop", "api"), web);
    });
    running.failing(1).await;
    running.answer(web, "/", 200).await;
}

#[tokio::test]
async fn the_node_is_healthy_while_its_services_are_in_force() {
    let host = Ipv4Addr::new(127, 0, 91, 4);
    let web = free(host).await;
    let (kube_proxy, node) = taken(host).await;
    let running = Running::start(host, Some((host, node).into()));
    running.failing(1).await;
    running.apply(&[(web, "web", 1)]);
    running.answer(web, "/", 200).await;
    drop(kube_proxy);
    let answer = running.answer(node, "/healthz", 200).await;
    assert!(answer.contains("\"nodeEligible\":true,\"healthy\":true"), "{answer}");
    let live = running.answer(node, "/livez", 200).await;
    assert!(live.contains("\"healthy\":true") && !live.contains("nodeEligible"), "{live}");
    running.answer(node, "/other", 404).await;

    running.health.send_modify(|of| of.proxy.is_leaving = true);
    running.answer(node, "/healthz", 503).await;
    running.answer(node, "/livez", 200).await;
    running.answer(web, "/", 200).await;

    // No state has come into force yet.
    running.health.send_modify(|of| of.proxy = ProxyHealth::default());
    running.answer(node, "/livez", 503).await;
    let unhealthy = running.answer(web, "/", 503).await;
    assert!(unhealthy.contains("\"serviceProxyHealthy\": false"), "{unhealthy}");
}

#[test]
fn checks_stay_while_the_services_of_a_later_state_are_not_in_force() {
    let mut health = ServiceHealth::default();
    let at = HealthPort { family: Family::V4, port: 31007 };
    let check = HealthCheck { service: ObjectName::new("shop", "web"), endpoints: 1 };
    let checks = HealthChecks { by_port: [(at, check)].into(), ..HealthChecks::default() };
    let checks = Arc::new(checks);
    health.proxy.begin(Time(0));
    assert!(health.finish(Some(Arc::clone(&checks)), Time(0)));
    assert!(!health.finish(Some(Arc::clone(&checks)), Time(1)), "nothing has changed");
    health.proxy.begin(Time(1000));
    assert!(!health.finish(None, Time(2000)));
    assert_eq!(health.checks, checks);
    assert!(health.proxy.is_healthy(Time(60_999)) && !health.proxy.is_healthy(Time(61_000)));
}
