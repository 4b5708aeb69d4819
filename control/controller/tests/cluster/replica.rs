//! The production program, as a process of its own.

use crate::world::PATIENCE;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex},
    thread,
};
use tests_eventually::eventually_async;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// A replica; a drop kills it.
pub(crate) struct Replica {
    child: Child,
    log: Arc<Mutex<Vec<Value>>>,
    pub(crate) at: SocketAddr,
    pub(crate) health: SocketAddr,
}

impl Replica {
    /// Starts a replica on free ports. It need not be ready yet.
    pub(crate) async fn start(kubeconfig: &Path, args: &[&str]) -> Self {
        Self::start_with(kubeconfig, args, &[]).await
    }

    /// Like [`Replica::start`], with these environment variables.
    pub(crate) async fn start_with(
        kubeconfig: &Path,
        args: &[&str],
        env: &[(&str, OsString)],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule-controller"));
        command.arg("--kubeconfig").arg(kubeconfig);
        let listen =
            if args.contains(&"--listen") { &[][..] } else { &["--listen", "127.0.0.1:0"] };
        command.args(listen).args(["--health", "127.0.0.1:0"]);
        let grace = if args.contains(&"--grace") { &[][..] } else { &["--grace", "500ms"] };
        command.args(["--lease-lasts", "5s"]).args(grace).args(args);
        command.env_clear().envs(env.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let log: Arc<Mutex<Vec<Value>>> = Arc::default();
        let (lines, own) = (BufReader::new(child.stderr.take().unwrap()).lines(), log.clone());
        thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                eprintln!("replica: {line}");
                own.lock().unwrap().extend(serde_json::from_str(&line).ok());
            }
        });
        let at = |flag: &'static str| {
            let log = log.clone();
            async move {
                eventually_async(flag, PATIENCE, || async {
                    let log = log.lock().unwrap();
                    let line = log.iter().find(|line| line["message"] == flag)?;
                    line["at"].as_str()?.parse().ok()
                })
                .await
            }
        };
        let (at, health) = (at("--listen").await, at("--health").await);
        Self { child, log, at, health }
    }

    /// Waits until the replica serves nodes.
    pub(crate) async fn ready(&self) {
        eventually_async("the replica is ready", PATIENCE, || async {
            self.get("/readyz").await.filter(|answer| answer.starts_with("HTTP/1.0 200"))
        })
        .await;
    }

    /// Returns an answer with its header.
    pub(crate) async fn get(&self, path: &str) -> Option<String> {
        let mut stream = TcpStream::connect(self.health).await.ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        Some(answer)
    }

    /// Returns the sum of a metric's values over all series whose labels contain this text.
    pub(crate) async fn metric(&self, name: &str, label: &str) -> f64 {
        let page = self.get("/metrics").await.unwrap_or_default();
        let of = |line: &&str| {
            let end = line.strip_prefix(name).and_then(|rest| rest.chars().next());
            matches!(end, Some('{' | ' ')) && line.contains(label)
        };
        let values =
            page.lines().filter(of).filter_map(|line| line.rsplit(' ').next()?.parse().ok());
        values.fold(0.0, |sum, value: f64| sum + value)
    }

    pub(crate) fn has_logged(&self, message: &str) -> bool {
        self.has_line(|line| line["message"] == message)
    }

    pub(crate) fn has_line(&self, is_sought: impl Fn(&Value) -> bool) -> bool {
        self.log.lock().unwrap().iter().any(is_sought)
    }

    /// Returns the number of log lines whose JSON text fulfills the condition.
    pub(crate) fn lines_with(&self, is_sought: impl Fn(&str) -> bool) -> usize {
        let log = self.log.lock().unwrap();
        log.iter().filter(|line| is_sought(&line.to_string())).count()
    }

    /// Returns the highest resident memory of the process so far, in MiB.
    pub(crate) fn peak_memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        let kibibytes: u64 = line.trim().strip_suffix(" kB").unwrap().parse().unwrap();
        kibibytes.div_ceil(1024)
    }

    pub(crate) fn terminate(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    }

    /// Waits for the end of the process and returns its status.
    pub(crate) async fn ended(&mut self) -> ExitStatus {
        let exit = async || self.child.try_wait().unwrap();
        eventually_async("the replica to exit", PATIENCE, exit).await
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The process may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
