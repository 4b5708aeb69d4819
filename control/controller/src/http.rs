//! `/livez`, `/readyz` and `/metrics`.

use crate::{metrics::Metrics, readiness::Readiness};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use control_rpc::{Bounds, SharedHub};
use runtime_process::{
    listen::{BOUNDS, serve_on},
    published::{Published, publish},
};
use std::{
    convert::Infallible,
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// Limits on connections: those of the other metrics ports, with more places.
const CONNECTIONS: Bounds = Bounds { preauth: 128, ..BOUNDS };

/// Sources of the answers.
#[derive(Clone)]
pub(crate) struct Health {
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) readiness: Arc<Readiness>,
    pub(crate) metrics: Arc<Metrics>,
    /// The reason why there is no certificate.
    pub(crate) lacks: watch::Receiver<Option<String>>,
    pub(crate) is_ending: Arc<AtomicBool>,
}

/// State of the handlers. No request takes the hub's lock: one task takes it for all requests.
#[derive(Clone)]
struct Shown {
    health: Health,
    page: Published<Page>,
}

struct Page {
    generation: u64,
    metrics: String,
}

/// Serves forever. An address with many connections does not block other addresses.
pub(crate) async fn serve(listener: TcpListener, health: Health) -> Infallible {
    let pages = health.clone();
    let (page, writing) = publish(PAUSE, move || ready(Some(pages.page())));
    // A task that waits for the hub's lock must not stop the listener.
    let mut tasks = JoinSet::new();
    tasks.spawn(writing);
    let router = Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(Shown { health, page });
    match serve_on(listener, router, CONNECTIONS).await {}
}

impl Health {
    fn page(&self) -> Page {
        let (measures, reached, is_loaded) =
            self.hub.with(|hub| (hub.measures(), hub.reached().clone(), hub.is_loaded()));
        self.metrics.hub(&measures, &reached, is_loaded);
        self.metrics.readiness(&self.readiness);
        Page { generation: measures.generation, metrics: self.metrics.page() }
    }

    /// Returns the reasons why this replica is not ready; empty if it is.
    fn lacks(&self) -> Vec<String> {
        let mut lacks = Vec::new();
        if self.is_ending.load(Ordering::SeqCst) {
            lacks.push("this replica stops".to_owned());
        }
        lacks.extend(self.lacks.borrow().as_ref().map(|why| format!("certificate: {why}")));
        lacks.extend(
            self.readiness.waits_for().into_iter().map(|kind| format!("waiting for {kind}")),
        );
        lacks
    }
}

/// Proves that the runtime runs and that no task holds the hub's lock forever.
async fn livez(State(shown): State<Shown>) -> Response {
    match shown.page.fresh(PAGE_TIME).await {
        Some(page) => format!("alive, at generation {}\n", page.generation).into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "no page in time\n").into_response(),
    }
}

async fn readyz(State(Shown { health, .. }): State<Shown>) -> Response {
    let lacks = health.lacks();
    let status = if lacks.is_empty() { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut text = if lacks.is_empty() { "ready\n".to_owned() } else { "not ready\n".to_owned() };
    let mut line = |line: &str| text.push_str(&format!("{line}\n"));
    lacks.iter().for_each(|lack| line(lack));
    line("");
    health.readiness.lines().iter().for_each(|kind| line(kind));
    (status, text).into_response()
}

async fn metrics(State(shown): State<Shown>) -> Response {
    match shown.page.fresh(PAGE_TIME).await {
        Some(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page.metrics.clone())
            .into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "no page in time\n").into_response(),
    }
}

/// The timeout of a page.
const PAGE_TIME: Duration = Duration::from_secs(5);
/// The pause between two pages, however many requests there are.
const PAUSE: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use crate::kinds::Resource;
    use control_hub::Hub;
    use std::{
        io::{Read as _, Write as _},
        net::{SocketAddr, TcpStream},
        sync::mpsc,
        thread,
    };
    use tests_eventually::eventually;

    const PATIENCE: Duration = Duration::from_secs(60);
    /// More requests than threads.
    const REQUESTS: usize = 16;

    fn ask(at: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).unwrap();
        stream
    }

    fn answer(mut stream: TcpStream) -> String {
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn requests_that_wait_for_the_hub_stop_no_other_request() {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(2).enable_all().build().unwrap();
        let hub = SharedHub::new(Hub::new([7; 16], 7));
        let health = Health {
            hub: hub.clone(),
            readiness: Arc::new(Readiness::new(Resource::all(false))),
            metrics: Arc::new(Metrics::new().unwrap()),
            lacks: watch::channel(None).1,
            is_ending: Arc::default(),
        };
        let listener = runtime.block_on(TcpListener::bind(("127.0.0.1", 0))).unwrap();
        let at = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, health));

        let (locked, is_locked) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let holder = thread::spawn(move || {
            hub.with(|_| {
                locked.send(()).unwrap();
                // An error means that the test has failed.
                let _ = released.recv();
            });
        });
        is_locked.recv().unwrap();
        let waiting: Vec<TcpStream> = (0..REQUESTS)
            .map(|number| ask(at, if number % 2 == 0 { "/metrics" } else { "/livez" }))
            .collect();
        // A thread can serve the newest connection before the others.
        for _ in 0..REQUESTS {
            let text = answer(ask(at, "/readyz"));
            assert!(text.starts_with("HTTP/1.0 503") && text.contains("not ready"), "{text}");
        }
        release.send(()).unwrap();
        holder.join().unwrap();
        drop(waiting);
        for (path, line) in
            [("/metrics", "ferrule_controller_generation 0"), ("/livez", "alive, at generation 0")]
        {
            eventually(path, PATIENCE, || answer(ask(at, path)).contains(line));
        }
    }
}
