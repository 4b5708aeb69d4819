//! `/metrics` and introspection over HTTP. Both are read-only.

mod addresses;
mod introspect;
mod status;
mod subnets;
mod wall;

use crate::{
    cluster::Cluster,
    inbox::Inbox,
    install,
    metrics::{Kubernetes, Metrics},
    pass_report::PassReport,
    troubles::OpenProblem,
    view::View,
};
use axum::{
    Router,
    extract::{Path, State},
    http::{StatusCode, header},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use config_model::causes;
use config_settings::{Bind, Settings};
use datapath_rpc::{AgentAt, wire::PathsReply};
use runtime_process::published::{Published, publish};
use serde_json::{Value, json};
use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{Mutex, watch},
    time::timeout,
};

/// The sources of the pages.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) inbox: Inbox,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) reports: watch::Receiver<PassReport>,
    pub(crate) cluster: Cluster,
    pub(crate) troubles: watch::Receiver<Vec<OpenProblem>>,
    /// `None` if ferrule-agent does not enforce policy on this node.
    pub(crate) agent: Option<AgentAt>,
}

impl Shown {
    async fn view(&self) -> Option<View> {
        timeout(ANSWER_TIME, self.inbox.view()).await.ok()?.ok()
    }

    async fn metrics(&self) -> String {
        // Counters are served even if the event loop does not answer.
        if let Some(view) = self.view().await {
            let cluster = &self.cluster;
            let kubernetes = Kubernetes {
                concern_states: cluster.concern_states(),
                lacks: cluster.lacks().is_some(),
            };
            self.metrics.set_gauges(&view, &kubernetes, &self.reports.borrow());
        }
        let troubles = self.troubles.borrow();
        self.metrics.set_troubles(troubles.iter().map(|it| (it.found.kind, it.found.severity)));
        drop(troubles);
        if let Some(standing) = install::NetworkReport::read(&self.settings) {
            self.metrics.network(standing.restored, standing.failing.is_some());
        }
        self.metrics.page()
    }
}

/// The state behind introspection. No request enters the event loop: one task reads the view for all of them.
#[derive(Clone)]
struct Introspection {
    view: Published<View>,
    shown: Shown,
    /// The agent counts the connections of one pod at a time.
    counting: Arc<Mutex<()>>,
}

impl Introspection {
    async fn view(&self) -> Option<Arc<View>> {
        self.view.fresh(PAGE_TIME).await
    }
}

/// Serves `/metrics` and never returns. Any pod can reach the port, so one task makes the page for all requests.
pub(crate) async fn serve_metrics(shown: Shown, port: u16) {
    let (page, task) = publish(PAUSE, async || Some(shown.metrics().await));
    let router = Router::new().route("/metrics", get(metrics)).with_state(page);
    let at = Bind::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    tokio::join!(task, runtime_process::listen::serve(router, &at, "metrics"));
}

/// Serves introspection and never returns.
pub(crate) async fn serve_introspection(shown: Shown, at: Bind) {
    let (view, task) = publish(PAUSE, async || shown.view().await);
    let counting = Arc::default();
    let introspection = Introspection { view, shown: shown.clone(), counting };
    let router = Router::new()
        .route("/v1/enis", get(enis))
        .route("/v1/ipamd-env-settings", get(ipamd_settings))
        .route("/v1/networkutils-env-settings", get(network_settings))
        .route(view_node::PODS, get(pods))
        .route(view_node::STATUS, get(status))
        .route(view_node::ADDRESSES, get(addresses))
        .route(&format!("{}/{{uid}}", view_node::PATHS), get(paths))
        .route("/v1/ferrule/explain", get(explain))
        .fallback(commands)
        .with_state(introspection);
    tokio::join!(task, runtime_process::listen::serve(router, &at, "introspection"));
}

async fn metrics(State(page): State<Published<String>>) -> Response {
    match page.fresh(PAGE_TIME).await {
        Some(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page.to_string())
            .into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "no page in time\n").into_response(),
    }
}

async fn enis(State(of): State<Introspection>) -> Response {
    answer(of.view().await.map(|view| introspect::enis(&view)))
}

async fn pods(State(of): State<Introspection>) -> Response {
    answer(of.view().await.map(|view| introspect::pods(&view)))
}

async fn status(State(of): State<Introspection>) -> Response {
    let view = of.view().await;
    let troubles = of.shown.troubles.borrow().clone();
    answer(view.map(|view| json!(status::status(&view, &of.shown.settings, &troubles))))
}

async fn addresses(State(of): State<Introspection>) -> Response {
    let settings = &of.shown.settings;
    answer(of.view().await.map(|view| json!(addresses::addresses(&view, settings))))
}

async fn paths(State(of): State<Introspection>, Path(uid): Path<String>) -> Response {
    let Some(agent) = &of.shown.agent else { return Json(Value::Null).into_response() };
    let _counting = of.counting.lock().await;
    match agent.paths(uid, Instant::now() + ANSWER_TIME).await {
        Ok(PathsReply { stack, pods, nodes, .. }) => {
            Json(json!(view_node::Paths { stack, pods, nodes })).into_response()
        }
        Err(error) => {
            (StatusCode::SERVICE_UNAVAILABLE, format!("{}\n", causes(&error))).into_response()
        }
    }
}

async fn explain(State(of): State<Introspection>) -> Response {
    let report = of.shown.reports.borrow().clone();
    let cluster = of.shown.cluster.clone();
    answer(of.view().await.map(|view| introspect::explain(&view, &cluster, &report)))
}

async fn ipamd_settings(State(of): State<Introspection>) -> Json<Value> {
    Json(introspect::ipamd_settings(&of.shown.settings))
}

async fn network_settings(State(of): State<Introspection>) -> Json<Value> {
    Json(introspect::network_settings(&of.shown.settings))
}

async fn commands() -> Json<Value> {
    Json(json!({ "AvailableCommands": COMMANDS }))
}

fn answer(body: Option<Value>) -> Response {
    match body {
        Some(body) => Json(body).into_response(),
        None => {
            (StatusCode::SERVICE_UNAVAILABLE, "the event loop does not answer\n").into_response()
        }
    }
}

const COMMANDS: [&str; 8] = [
    "/v1/enis",
    "/v1/ipamd-env-settings",
    "/v1/networkutils-env-settings",
    view_node::PODS,
    view_node::STATUS,
    view_node::ADDRESSES,
    view_node::PATHS,
    "/v1/ferrule/explain",
];
/// The timeout of the event loop's answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// The timeout of a page or a view. A page for earlier requests can come first, and each takes up to [`ANSWER_TIME`].
const PAGE_TIME: Duration = Duration::from_secs(5);
/// The pause between two pages, however many requests there are.
const PAUSE: Duration = Duration::from_millis(100);
