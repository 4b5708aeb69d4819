//! Metrics and health over HTTP.

use crate::{event::Event, metrics::Metrics};
use axum::{
    Router,
    extract::State,
    http::{StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use config_settings::Bind;
use datapath_node::Overview;
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};

/// The source of the pages.
#[derive(Clone)]
pub(crate) struct Pages {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Pages {
    async fn now(&self) -> Option<(Overview, Option<String>)> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.events.send(Event::Overview { reply }).await.ok()?;
            answer.await.ok()
        };
        timeout(ANSWER_TIME, asked).await.ok()?
    }
}

/// Serves forever.
pub(crate) async fn serve(pages: Pages, at: Bind) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .with_state(pages);
    runtime_process::listen::serve(router, &at, "metrics").await;
}

async fn metrics(State(pages): State<Pages>) -> Response {
    // Counters are exposed even if the loop does not answer.
    let page = pages.metrics.page(pages.now().await.as_ref());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

async fn live(State(pages): State<Pages>) -> Response {
    match pages.now().await {
        Some(_) => "ok\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response(),
    }
}

async fn ready(State(pages): State<Pages>) -> Response {
    match pages.now().await {
        Some((overview, _)) => match unready(&overview) {
            None => "ok\n".into_response(),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
        },
        None => (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response(),
    }
}

/// Returns the reason why a new pod could not start now; `None` if it could.
pub(crate) fn unready(overview: &Overview) -> Option<String> {
    if let Some(why) = &overview.fault {
        return Some(format!("the backend: {why}"));
    }
    match &overview.disconnected {
        Some(why) if overview.epoch.is_empty() => {
            Some(format!("no replica has sent a snapshot yet: {why}"))
        }
        Some(_) | None if overview.applied == 0 => Some("no state is in force yet".to_owned()),
        Some(_) | None => None,
    }
}

const ANSWER_TIME: Duration = Duration::from_secs(2);
