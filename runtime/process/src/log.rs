//! The log of long-running programs: levels per crate, format, and destination.

mod file;

use config_settings::{LogLevel, LogTo};
use file::LogFile;
use std::io;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _, registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// One JSON object per line.
    #[default]
    Json,
    /// Plain text for terminals.
    Text,
}

/// The configuration of the log.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Our own crates, to which `level` applies. Other crates log warnings and errors only, because their finer lines
    /// may contain requests.
    pub ours: &'static [&'static str],
    pub level: LogLevel,
    pub form: Form,
}

/// Crates that warn about each attempt. Our own lines have the result, so only their errors are logged.
const NOISY: [&str; 5] =
    ["aws_config", "aws_runtime", "aws_smithy_runtime", "kube_client", "kube_runtime"];

impl Log {
    /// Starts the log. If the file cannot be opened, the log goes to stderr, with a warning that names `setting`, the
    /// setting of the path.
    pub fn start(self, to: &LogTo, setting: &str) {
        match to {
            LogTo::Stdout => self.install(io::stdout),
            LogTo::Stderr => self.install(io::stderr),
            LogTo::File(path) => match LogFile::open(path) {
                Ok(file) => self.install(file),
                Err(error) => {
                    self.install(io::stderr);
                    let path = path.display();
                    tracing::warn!(%error, "{setting}: cannot open {path}; logging to stderr");
                }
            },
        }
    }

    fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(self, writer: W) {
        // A second start in one process keeps the first log. Only tests do that.
        let _ = tracing_subscriber::registry().with(self.lines(writer)).try_init();
    }

    /// The lines of [`Log::start`] for another writer.
    pub fn lines<S, W>(self, writer: W) -> impl Layer<S> + Send + Sync
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let lines = tracing_subscriber::fmt::layer().with_writer(writer);
        let lines = match self.form {
            // With the spans of a request, if the line belongs to one.
            Form::Json => lines
                .json()
                .flatten_event(true)
                .with_current_span(true)
                .with_span_list(false)
                .boxed(),
            Form::Text => lines.with_ansi(false).boxed(),
        };
        lines.with_filter(self.filter())
    }

    fn filter(self) -> Targets {
        let level = match self.level {
            LogLevel::Debug => LevelFilter::DEBUG,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Error => LevelFilter::ERROR,
        };
        let others = Targets::new().with_default(LevelFilter::WARN);
        let others =
            NOISY.iter().fold(others, |all, name| all.with_target(*name, LevelFilter::ERROR));
        self.ours.iter().fold(others, |all, name| all.with_target(*name, level))
    }
}
