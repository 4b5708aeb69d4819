//! `/metrics` and introspection over HTTP. Both are read-only.

mod introspect;
mod status;
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
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Json, Response},
    routing::get,
};
use config_settings::{Bind, Settings};
use serde_json::{Value, json};
use std::{
    net::{Ipv6Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// The sources of the pages.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) inbox: Inbox,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) settings: Arc<Settings>,
    pub(crate) reports: watch::Receiver<PassReport>,
    pub(crate) cluster: Cluster,
    pub(crate) troubles: watch::Receiver<Vec<OpenProblem>>,
}

impl Shown {
    async fn view(&self) -> Option<View> {
        timeout(ANSWER_TIME, self.inbox.view()).await.ok()?.ok()
    }
}

/// Serves `/metrics` and never returns.
pub(crate) async fn serve_metrics(shown: Shown, port: u16) {
    let router = Router::new().route("/metrics", get(metrics)).with_state(shown);
    let at = Bind::Tcp(SocketAddr::from((Ipv6Addr::UNSPECIFIED, port)));
    runtime_process::listen::serve(router, &at, "metrics").await;
}

/// Serves introspection and never returns.
pub(crate) async fn serve_introspection(shown: Shown, at: Bind) {
    let router = Router::new()
        .route("/v1/enis", get(enis))
        .route("/v1/ipamd-env-settings", get(ipamd_settings))
        .route("/v1/networkutils-env-settings", get(network_settings))
        .route(view_node::PODS, get(pods))
        .route(view_node::STATUS, get(status))
        .route("/v1/ferrule/explain", get(explain))
        .fallback(commands)
        .with_state(shown);
    runtime_process::listen::serve(router, &at, "introspection").await;
}

async fn metrics(State(shown): State<Shown>) -> Response {
    // Counters are served even if the event loop does not answer.
    if let Some(view) = shown.view().await {
        let cluster = &shown.cluster;
        let kubernetes = Kubernetes {
            concern_states: cluster.concern_states(),
            lacks: cluster.lacks().is_some(),
        };
        shown.metrics.set_gauges(&view, &kubernetes, &shown.reports.borrow());
    }
    let troubles = shown.troubles.borrow();
    shown.metrics.set_troubles(troubles.iter().map(|it| (it.found.kind, it.found.severity)));
    drop(troubles);
    if let Some(standing) = install::NetworkReport::read(&shown.settings) {
        shown.metrics.network(standing.restored, standing.failing.is_some());
    }
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shown.metrics.page()).into_response()
}

async fn enis(State(shown): State<Shown>) -> Response {
    answer(shown.view().await.map(|view| introspect::enis(&view)))
}

async fn pods(State(shown): State<Shown>) -> Response {
    answer(shown.view().await.map(|view| introspect::pods(&view)))
}

async fn status(State(shown): State<Shown>) -> Response {
    let view = shown.view().await;
    let troubles = shown.troubles.borrow().clone();
    answer(view.map(|view| json!(status::status(&view, &shown.settings, &troubles))))
}

async fn explain(State(shown): State<Shown>) -> Response {
    let report = shown.reports.borrow().clone();
    let cluster = shown.cluster.clone();
    answer(shown.view().await.map(|view| introspect::explain(&view, &cluster, &report)))
}

async fn ipamd_settings(State(shown): State<Shown>) -> Json<Value> {
    Json(introspect::ipamd_settings(&shown.settings))
}

async fn network_settings(State(shown): State<Shown>) -> Json<Value> {
    Json(introspect::network_settings(&shown.settings))
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

const COMMANDS: [&str; 6] = [
    "/v1/enis",
    "/v1/ipamd-env-settings",
    "/v1/networkutils-env-settings",
    view_node::PODS,
    view_node::STATUS,
    "/v1/ferrule/explain",
];
const ANSWER_TIME: Duration = Duration::from_secs(2);
