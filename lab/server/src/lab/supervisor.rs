//! Keeps one node's daemon running, as a kubelet does with a container of a DaemonSet.

use super::{LabError, provision::DaemonCommand};
use crate::control::DaemonView;
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::time::{Duration, Instant};
use tokio::{
    process::Child,
    sync::{mpsc, oneshot, watch},
    time::{sleep_until, timeout},
};

/// A handle on the task that owns the daemon's process.
pub(super) struct Supervisor {
    orders: mpsc::Sender<(Order, oneshot::Sender<()>)>,
    view: watch::Receiver<DaemonView>,
}

enum Order {
    Start(DaemonCommand),
    Stop,
    PowerOn(DaemonCommand),
    PowerOff,
    End,
}

impl Supervisor {
    /// For a node that is off; the daemon starts with the node if `wanted` is true.
    pub(super) fn new(node: String, wanted: bool) -> Self {
        let (orders, inbox) = mpsc::channel(8);
        let (show, view) = watch::channel(DaemonView::default());
        let task = Task { node, wanted, show, ..Task::default() };
        tokio::spawn(task.run(inbox));
        Self { orders, view }
    }

    /// Current state of the daemon.
    pub(super) fn view(&self) -> DaemonView {
        self.view.borrow().clone()
    }

    /// Keeps it running; restarts it if its settings changed.
    pub(super) async fn start(&self, command: DaemonCommand) {
        self.order(Order::Start(command)).await;
    }

    /// Ends it by SIGTERM and keeps it down.
    pub(super) async fn stop(&self) {
        self.order(Order::Stop).await;
    }

    /// The node is up.
    pub(super) async fn power_on(&self, command: DaemonCommand) {
        self.order(Order::PowerOn(command)).await;
    }

    /// The node is down.
    pub(super) async fn power_off(&self) {
        self.order(Order::PowerOff).await;
    }

    /// Ends it at once, and the supervision with it.
    pub(super) async fn end(&self) {
        self.order(Order::End).await;
    }

    /// Sends the daemon a signal; after SIGKILL its process is gone on return.
    pub(super) async fn signal(&self, signal: i32, node: &str) -> Result<(), LabError> {
        let pid = self.view().pid.ok_or_else(|| LabError::NoDaemon(node.to_owned()))?;
        send(pid, signal)?;
        if signal == Signal::SIGKILL as i32 {
            let mut view = self.view.clone();
            let _ = timeout(GRACE, view.wait_for(|view| view.pid != Some(pid))).await;
        }
        Ok(())
    }

    async fn order(&self, order: Order) {
        let (done, wait) = oneshot::channel();
        // A task that has ended has nothing left to do.
        if self.orders.send((order, done)).await.is_ok() {
            let _ = wait.await;
        }
    }
}

#[derive(Default)]
struct Task {
    node: String,
    wanted: bool,
    /// Its command; `None` while the node is off.
    command: Option<DaemonCommand>,
    child: Option<Child>,
    started: Option<Instant>,
    /// Not before this.
    rest_until: Option<Instant>,
    failures: u32,
    restarts: u32,
    show: watch::Sender<DaemonView>,
}

impl Task {
    async fn run(mut self, mut inbox: mpsc::Receiver<(Order, oneshot::Sender<()>)>) {
        loop {
            self.start_if_due();
            self.publish();
            let rest = self.rest_until.filter(|_| self.child.is_none() && self.is_due_later());
            tokio::select! {
                order = inbox.recv() => {
                    let Some((order, done)) = order else { break };
                    let last = matches!(order, Order::End);
                    self.obey(order).await;
                    self.start_if_due();
                    self.publish();
                    let _ = done.send(());
                    if last {
                        break;
                    }
                }
                () = exited(&mut self.child), if self.child.is_some() => self.note_exit(),
                () = sleep_until(rest.unwrap_or_else(Instant::now).into()), if rest.is_some() => {}
            }
        }
        self.kill().await;
        self.publish();
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Start(command) => {
                let differs = |known: &DaemonCommand| {
                    (&known.program, &known.env) != (&command.program, &command.env)
                };
                let other = self.command.as_ref().is_some_and(differs);
                if other {
                    self.terminate().await;
                }
                if self.command.is_some() {
                    self.command = Some(command);
                }
                self.wanted = true;
                self.rest_until = None;
            }
            Order::Stop => {
                self.wanted = false;
                self.terminate().await;
            }
            Order::PowerOn(command) => {
                self.kill().await;
                self.command = Some(command);
                (self.restarts, self.failures, self.rest_until) = (0, 0, None);
            }
            Order::PowerOff | Order::End => {
                self.command = None;
                self.kill().await;
            }
        }
    }

    fn is_due_later(&self) -> bool {
        self.wanted && self.command.is_some()
    }

    fn start_if_due(&mut self) {
        let resting = self.rest_until.is_some_and(|until| until > Instant::now());
        if !self.wanted || resting || self.child.is_some() {
            return;
        }
        let Some(command) = &self.command else { return };
        match command.spawn() {
            Ok(child) => {
                tracing::info!(node = self.node, pid = child.id(), "the daemon starts");
                self.child = Some(child);
                self.started = Some(Instant::now());
                self.rest_until = None;
            }
            Err(err) => {
                tracing::error!(node = self.node, err = err.chain(), "the daemon does not start");
                self.rest();
            }
        }
    }

    fn note_exit(&mut self) {
        let status = self.child.take().and_then(|mut child| child.try_wait().ok().flatten());
        let status = status.map_or_else(|| "unknown".to_owned(), |status| status.to_string());
        tracing::warn!(node = self.node, status, "the daemon ended");
        if self.started.is_some_and(|started| started.elapsed() > STEADY) {
            self.failures = 0;
        }
        self.restarts += 1;
        self.rest();
    }

    fn rest(&mut self) {
        let wait = FIRST_REST * 2_u32.pow(self.failures.min(6));
        self.failures += 1;
        self.rest_until = Some(Instant::now() + wait.min(LONGEST_REST));
    }

    async fn terminate(&mut self) {
        let listens = self.command.as_ref().is_some_and(|command| !command.is_deaf);
        if let Some(pid) = self.child.as_ref().and_then(Child::id).filter(|_| listens) {
            let _ = send(pid, Signal::SIGTERM as i32);
            let _ = timeout(GRACE, exited(&mut self.child)).await;
        }
        self.kill().await;
    }

    async fn kill(&mut self) {
        if let Some(mut child) = self.child.take()
            && let Err(err) = child.kill().await
        {
            tracing::warn!(node = self.node, %err, "the daemon could not be killed");
        }
    }

    fn publish(&self) {
        let pid = self.child.as_ref().and_then(Child::id);
        let state = match pid {
            Some(_) => "running",
            None if self.is_due_later() => "waiting",
            None => "stopped",
        };
        let restarts = self.restarts;
        let view = DaemonView { state: state.to_owned(), pid, restarts };
        self.show.send_if_modified(|shown| {
            let differs = *shown != view;
            *shown = view;
            differs
        });
    }
}

/// Ends when the child does; never without one.
async fn exited(child: &mut Option<Child>) {
    match child {
        Some(child) => {
            let _ = child.wait().await;
        }
        None => std::future::pending().await,
    }
}

fn send(pid: u32, signal: i32) -> Result<(), LabError> {
    let failed = |cause| LabError::Signal { pid, cause };
    let number = Signal::try_from(signal).map_err(|err| failed(err.into()))?;
    let target = i32::try_from(pid).map(Pid::from_raw);
    let target = target.map_err(|err| failed(std::io::Error::other(err)))?;
    kill(target, number).map_err(|err| failed(err.into()))
}

/// Time limit for a daemon to end after SIGTERM.
const GRACE: Duration = Duration::from_secs(15);
const FIRST_REST: Duration = Duration::from_millis(200);
const LONGEST_REST: Duration = Duration::from_secs(10);
/// A daemon that ran so long is not in a crash loop.
const STEADY: Duration = Duration::from_secs(10);
