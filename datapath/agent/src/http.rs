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
use runtime_process::published::{Published, publish};
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

/// State of the handlers. No request enters the loop: one task asks it for all requests.
#[derive(Clone)]
struct Shown {
    now: Published<(Overview, Option<String>)>,
    page: Published<String>,
}

/// Serves forever.
pub(crate) async fn serve(pages: Pages, at: Bind) {
    let (now, reading) = publish(PAUSE, async || pages.now().await);
    let (page, writing) = publish(PAUSE, async || {
        // Counters are exposed even if the loop does not answer.
        Some(pages.metrics.page(pages.now().await.as_ref()))
    });
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .with_state(Shown { now, page });
    tokio::join!(reading, writing, runtime_process::listen::serve(router, &at, "metrics"));
}

async fn metrics(State(shown): State<Shown>) -> Response {
    match shown.page.fresh(PAGE_TIME).await {
        Some(page) => ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page.to_string())
            .into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "no page in time\n").into_response(),
    }
}

async fn live(State(shown): State<Shown>) -> Response {
    match shown.now.fresh(PAGE_TIME).await {
        Some(_) => "ok\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response(),
    }
}

async fn ready(State(shown): State<Shown>) -> Response {
    match shown.now.fresh(PAGE_TIME).await.as_deref() {
        Some((overview, _)) => match unready(overview) {
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

/// The timeout of the loop's answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);
/// The timeout of a page or a view. A page for earlier requests can come first, and each takes up to [`ANSWER_TIME`].
const PAGE_TIME: Duration = Duration::from_secs(5);
/// The pause between two pages, however many requests there are.
const PAUSE: Duration = Duration::from_millis(100);
