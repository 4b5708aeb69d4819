//! Metrics and health over HTTP, for those who only look.

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
use std::{fs, io, path::Path, sync::Arc, time::Duration};
use tokio::{
    net::UnixListener,
    sync::{mpsc, oneshot},
    time::{sleep, timeout},
};

/// What is shown, and where it comes from.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Shown {
    async fn now(&self) -> Option<(Overview, Option<String>)> {
        let (reply, answer) = oneshot::channel();
        let asked = async {
            self.events.send(Event::Overview { reply }).await.ok()?;
            answer.await.ok()
        };
        timeout(ANSWER_TIME, asked).await.ok()?
    }
}

/// Serves, for ever. A place that is taken becomes free some time: the agent does not end for it.
pub(crate) async fn serve(shown: Shown, at: Bind) {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(live))
        .route("/readyz", get(ready))
        .with_state(shown);
    let mut pause = PAUSE_FIRST;
    loop {
        let ended = match &at {
            Bind::Tcp(address) => match config_listen::bind(*address).await {
                Ok(listener) => axum::serve(listener, router.clone()).await,
                Err(error) => Err(error),
            },
            Bind::Unix(path) => match listen(path) {
                Ok(listener) => axum::serve(listener, router.clone()).await,
                Err(error) => Err(error),
            },
        };
        if let Err(error) = ended {
            tracing::error!(%error, ?at, "cannot serve metrics; trying again");
        }
        sleep(pause).await;
        pause = (pause * 2).min(PAUSE_LAST);
    }
}

fn listen(path: &Path) -> io::Result<UnixListener> {
    use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

async fn metrics(State(shown): State<Shown>) -> Response {
    // Counters are told even when the loop does not answer.
    let page = shown.metrics.page(shown.now().await.as_ref());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], page).into_response()
}

async fn live(State(shown): State<Shown>) -> Response {
    match shown.now().await {
        Some(_) => "ok\n".into_response(),
        None => (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response(),
    }
}

async fn ready(State(shown): State<Shown>) -> Response {
    match shown.now().await {
        Some((overview, _)) => match unready(&overview) {
            None => "ok\n".into_response(),
            Some(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
        },
        None => (StatusCode::SERVICE_UNAVAILABLE, "the loop does not answer\n").into_response(),
    }
}

/// Why no pod could be let through now.
pub(crate) fn unready(overview: &Overview) -> Option<String> {
    if let Some(why) = &overview.trouble {
        return Some(format!("the backend: {why}"));
    }
    match &overview.alone {
        Some(why) if overview.epoch.is_empty() => Some(format!("nothing was told yet: {why}")),
        Some(_) | None if overview.applied == 0 => Some("nothing is in force yet".to_owned()),
        Some(_) | None => None,
    }
}

const ANSWER_TIME: Duration = Duration::from_secs(2);
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_LAST: Duration = Duration::from_secs(60);
