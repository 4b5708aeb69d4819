//! Log lines: one JSON object each.

use config_settings::{LogLevel, LogTo};
use std::{fs, io, path::Path, sync::Mutex};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _, registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// Our own crates: what they say counts from the level that is set. Others are heard from warnings
/// on, since their finer lines may carry what is in requests.
const OURS: [&str; 7] = [
    "ferrule_ipamd",
    "ipamd_daemon",
    "ipamd_core",
    "ipamd_cloud",
    "ipamd_rpc",
    "routing_netlink",
    "routing_plan",
];

/// Starts to log. A file that cannot be had is told on standard error, which is then used.
pub fn start(to: &LogTo, level: LogLevel) {
    let filter = filter(level);
    match to {
        LogTo::Stdout => install(filter, io::stdout),
        LogTo::Stderr => install(filter, io::stderr),
        LogTo::File(path) => match open(path) {
            Ok(file) => install(filter, Mutex::new(file)),
            Err(error) => {
                install(filter, io::stderr);
                let path = path.display();
                tracing::warn!(%error, "AWS_VPC_K8S_CNI_LOG_FILE: cannot open {path}; logging to stderr");
            }
        },
    }
}

fn filter(level: LogLevel) -> Targets {
    OURS.iter().fold(others(), |filter, target| filter.with_target(*target, level_filter(level)))
}

/// The SDK and kube warn of each attempt; we tell the outcome ourselves.
fn others() -> Targets {
    Targets::new()
        .with_default(LevelFilter::WARN)
        .with_target("aws_config", LevelFilter::ERROR)
        .with_target("aws_runtime", LevelFilter::ERROR)
        .with_target("aws_smithy_runtime", LevelFilter::ERROR)
        .with_target("kube_client", LevelFilter::ERROR)
        .with_target("kube_runtime", LevelFilter::ERROR)
}

fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(filter: Targets, writer: W) {
    // A second start in one process keeps the first one's log: only tests do that.
    let _ = tracing_subscriber::registry().with(lines(filter, writer)).try_init();
}

fn lines<S, W>(filter: Targets, writer: W) -> impl Layer<S> + Send + Sync
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    tracing_subscriber::fmt::layer()
        .json()
        .flatten_event(true)
        // The trace of a request, if it is part of one.
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(writer)
        .with_filter(filter)
}

fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}

fn level_filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Error => LevelFilter::ERROR,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_model::{PodKey, PodName};
    use ipamd_rpc::{
        Client, Collect, Collected, Confirm, Held, PoolStatus, Release, Released, Reserve,
        ReserveOutcome,
        server::{Health, Ipam, Unable, listen, serve},
    };
    use std::{
        future::pending,
        sync::Arc,
        time::{Duration, Instant},
    };

    /// Says what it is asked.
    struct Talker;

    fn no<T>() -> Result<T, Unable> {
        Err(Unable { message: "not here".to_owned() })
    }

    impl Ipam for Talker {
        async fn reserve(&self, _: Reserve) -> Result<ReserveOutcome, Unable> {
            no()
        }

        async fn confirm(&self, _: Confirm) -> Result<bool, Unable> {
            no()
        }

        async fn release(&self, _: Release) -> Result<Released, Unable> {
            no()
        }

        async fn inspect(&self, _: PodKey) -> Result<Option<Held>, Unable> {
            no()
        }

        async fn holds(&self, _: &PodName) -> Result<bool, Unable> {
            no()
        }

        async fn status(&self) -> Result<PoolStatus, Unable> {
            tokio::task::yield_now().await;
            tracing::warn!("asked");
            Ok(PoolStatus::default())
        }

        async fn collect(&self, _: Collect) -> Result<Collected, Unable> {
            no()
        }
    }

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, text: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(text);
            Ok(text.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn what_is_logged_of_a_request_names_its_trace() {
        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
        let page = Page::default();
        let writer = page.clone();
        let layer = lines(filter(LogLevel::Warn), move || writer.clone());
        let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("ipamd.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let incoming = listen(&socket).await.unwrap();
            let health = Health::starting().await;
            tokio::spawn(async move {
                serve(incoming, Arc::new(Talker), &health, pending()).await.unwrap();
            });
            let deadline = Instant::now() + Duration::from_secs(20);
            let parent = format!("00-{TRACE}-b7ad6b7169203331-01").parse().unwrap();
            let client = Client::connect(&socket, deadline).await.unwrap();
            client.status(deadline).await.unwrap();
            client.traced(Some(parent)).status(deadline).await.unwrap();
        });
        let text = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let told: Vec<serde_json::Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let [without, with] = told.as_slice() else { panic!("{text}") };
        assert_eq!((&without["message"], without.get("span")), (&"asked".into(), None));
        assert_eq!((&with["message"], &with["span"]["trace_id"]), (&"asked".into(), &TRACE.into()));
    }
}
