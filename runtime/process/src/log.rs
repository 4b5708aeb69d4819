//! Log lines of the programs that run for long: what is heard of whom, in which form, and where it goes.

use config_settings::{LogLevel, LogTo};
use std::{fs, io, path::Path, sync::Mutex};
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer, filter::Targets, fmt::MakeWriter, layer::SubscriberExt as _, registry::LookupSpan,
    util::SubscriberInitExt as _,
};

/// How lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// One JSON object each.
    #[default]
    Json,
    /// For people.
    Text,
}

/// What is logged.
#[derive(Clone, Copy, Debug)]
pub struct Log {
    /// Our own crates: what they say counts from `level` on. Others are heard from warnings on, since their finer lines may
    /// carry what is in requests.
    pub ours: &'static [&'static str],
    /// What is worth a line.
    pub level: LogLevel,
    /// How it is written.
    pub form: Form,
}

/// They warn of each attempt; we tell the outcome ourselves.
const TELL_TOO_MUCH: [&str; 5] =
    ["aws_config", "aws_runtime", "aws_smithy_runtime", "kube_client", "kube_runtime"];

impl Log {
    /// Starts to log. A file that cannot be had is told on standard error, which is then used; `setting` is the
    /// name of what says where.
    pub fn start(self, to: &LogTo, setting: &str) {
        match to {
            LogTo::Stdout => self.install(io::stdout),
            LogTo::Stderr => self.install(io::stderr),
            LogTo::File(path) => match open(path) {
                Ok(file) => self.install(Mutex::new(file)),
                Err(error) => {
                    self.install(io::stderr);
                    let path = path.display();
                    tracing::warn!(%error, "{setting}: cannot open {path}; logging to stderr");
                }
            },
        }
    }

    fn install<W: for<'a> MakeWriter<'a> + Send + Sync + 'static>(self, writer: W) {
        // A second start in one process keeps the first one's log: only tests do that.
        let _ = tracing_subscriber::registry().with(self.lines(writer)).try_init();
    }

    /// The lines as [`Log::start`] writes them, for a writer of one's own.
    pub fn lines<S, W>(self, writer: W) -> impl Layer<S> + Send + Sync
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
        W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
    {
        let lines = tracing_subscriber::fmt::layer().with_writer(writer);
        let lines = match self.form {
            // With the trace of a request, if it is part of one.
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
        let others = TELL_TOO_MUCH
            .iter()
            .fold(others, |all, name| all.with_target(*name, LevelFilter::ERROR));
        self.ours.iter().fold(others, |all, name| all.with_target(*name, level))
    }
}

fn open(path: &Path) -> io::Result<fs::File> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::OpenOptions::new().create(true).append(true).open(path)
}
