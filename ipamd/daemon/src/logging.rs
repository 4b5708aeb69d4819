//! The log: one JSON object per line.

use config_settings::{LogLevel, LogTo};
use runtime_process::log::{Form, Log};

/// Our own crates, to which the level of the settings applies.
const OURS: [&str; 7] = [
    "ferrule_ipamd",
    "ipamd_daemon",
    "ipamd_core",
    "ipamd_cloud",
    "ipamd_rpc",
    "routing_netlink",
    "routing_plan",
];

/// Starts the log. If the file cannot be opened, the log goes to stderr, with a line about the file.
pub fn start(to: &LogTo, level: LogLevel) {
    log(level).start(to, "AWS_VPC_K8S_CNI_LOG_FILE");
}

fn log(level: LogLevel) -> Log {
    Log { ours: &OURS, level, form: Form::Json }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_model::{PodKey, PodName};
    use ipamd_rpc::{
        Assignment, Client, Collect, Collected, Confirm, PoolStatus, Release, Released, Reserve,
        ReserveOutcome,
        server::{CallFailed, Ipam, serve},
    };
    use runtime_socket::server::{Health, listen};
    use std::{
        future::pending,
        io,
        sync::{Arc, Mutex},
        time::{Duration, Instant},
    };
    use tracing_subscriber::layer::SubscriberExt as _;

    /// A daemon that logs each STATUS call and fails all others.
    struct StatusOnly;

    fn no<T>() -> Result<T, CallFailed> {
        Err(CallFailed { message: "not here".to_owned() })
    }

    impl Ipam for StatusOnly {
        async fn reserve(&self, _: Reserve) -> Result<ReserveOutcome, CallFailed> {
            no()
        }

        async fn confirm(&self, _: Confirm) -> Result<bool, CallFailed> {
            no()
        }

        async fn release(&self, _: Release) -> Result<Released, CallFailed> {
            no()
        }

        async fn inspect(&self, _: PodKey) -> Result<Option<Assignment>, CallFailed> {
            no()
        }

        async fn holds(&self, _: &PodName) -> Result<bool, CallFailed> {
            no()
        }

        async fn status(&self) -> Result<PoolStatus, CallFailed> {
            tokio::task::yield_now().await;
            tracing::warn!("asked");
            Ok(PoolStatus::default())
        }

        async fn collect(&self, _: Collect) -> Result<Collected, CallFailed> {
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
    fn log_lines_of_a_request_name_its_trace() {
        const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
        let page = Page::default();
        let writer = page.clone();
        let layer = log(LogLevel::Warn).lines(move || writer.clone());
        let _log = tracing::subscriber::set_default(tracing_subscriber::registry().with(layer));
        let home = tempfile::tempdir().unwrap();
        let socket = home.path().join("ipamd.sock");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let incoming = listen(&socket).await.unwrap();
            let health = Health::starting().await;
            tokio::spawn(async move {
                serve(incoming, Arc::new(StatusOnly), &health, pending()).await.unwrap();
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
