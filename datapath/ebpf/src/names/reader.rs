//! The thread that reads answers.

use super::{Shared, State, lock, maps::Record, nanoseconds, now};
use crate::LoadError;
use config_model::{Span, Time, causes};
use datapath_names::{Answer, Checksum, Frame, Segment, StreamKey, read};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{Builder, JoinHandle, sleep},
    time::Duration,
};

/// Reads answers until it is dropped. Answers pass from then on.
pub(super) struct Reader {
    is_stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Programs hold answers for this many nanoseconds after the last sign of the thread. Later answers pass.
const HOLD: u64 = 300_000_000;
const SIGN_EVERY: Span = Span::millis(50);
/// A held answer that is older, in nanoseconds, is not sent: its resolver has asked again.
const STALE: u64 = 5_000_000_000;
/// The most records between two signs.
const BATCH: usize = 64;

impl Reader {
    pub(super) fn start(shared: Arc<Shared>) -> std::io::Result<Self> {
        let is_stopped = Arc::new(AtomicBool::new(false));
        let ready = lock(&lock(&shared.state).maps).ready()?;
        let seen = Arc::clone(&is_stopped);
        let thread = Builder::new().name("dns-answers".to_owned());
        let thread = thread.spawn(move || run(&shared, &ready, &seen))?;
        Ok(Self { is_stopped, thread: Some(thread) })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.is_stopped.store(true, Ordering::SeqCst);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, ready: &OwnedFd, is_stopped: &AtomicBool) {
    let mut is_failing = false;
    while !is_stopped.load(Ordering::SeqCst) {
        let mut state = lock(&shared.state);
        let turn = state.turn();
        let wake_at = state.names.wake_at();
        drop(state);
        match &turn {
            Ok(turn) if turn.is_changed => shared.changed.notify_one(),
            Ok(_) => {}
            Err(error) if !is_failing => {
                let why = causes(error);
                tracing::error!(
                    why,
                    "cannot read DNS answers: they pass, and new names allow nothing"
                );
            }
            Err(_) => {}
        }
        is_failing = turn.is_err();
        if !turn.is_ok_and(|turn| turn.is_full) {
            wait(ready, wake_at);
        }
    }
    let mut state = lock(&shared.state);
    let frames = state.names.late(Time(u64::MAX));
    state.send_all(&frames);
    if let Err(error) = state.sign(0) {
        tracing::warn!(
            why = causes(&error),
            "cannot let DNS answers pass: some are lost until 0.3 s"
        );
    }
}

/// Waits for a record, for the next sign, or for an answer that has waited too long.
fn wait(ready: &OwnedFd, wake_at: Option<Time>) {
    let left = wake_at.map_or(SIGN_EVERY, |at| at.since(now()).min(SIGN_EVERY));
    let timeout = Timespec { tv_sec: 0, tv_nsec: i64::try_from(left.0).unwrap_or(50) * 1_000_000 };
    let mut ready = [PollFd::new(ready, PollFlags::IN)];
    if poll(&mut ready, Some(&timeout)).is_err() {
        // A signal, or no memory.
        sleep(Duration::from_millis(1));
    }
}

/// The result of a turn.
struct Turn {
    /// Addresses are new.
    is_changed: bool,
    /// The ring may have more records.
    is_full: bool,
}

impl State {
    /// Shows that the agent runs, reads records, and sends answers that have waited too long.
    fn turn(&mut self) -> Result<Turn, LoadError> {
        self.sign(nanoseconds() + HOLD)?;
        let (mut is_changed, mut count, mut frames) = (false, 0, Vec::new());
        while count < BATCH {
            let Some(record) = lock(&self.maps).next() else { break };
            is_changed |= self.take(record, &mut frames);
            count += 1;
        }
        // Another process continues with what this pod knows.
        self.store()?;
        self.send_all(&frames);
        let late = self.names.late(now());
        self.send_all(&late);
        Ok(Turn { is_changed, is_full: count == BATCH })
    }

    fn sign(&self, until: u64) -> Result<(), LoadError> {
        let mark = self.packets.as_ref().map_or(0, |packets| packets.mark());
        lock(&self.maps).hold(until, mark)
    }

    pub(super) fn send_all(&mut self, frames: &[Frame]) {
        for frame in frames {
            self.send(frame.link(), frame.bytes());
        }
    }

    /// Takes a record. Adds the frame that is to be sent now, and returns true if addresses are new.
    fn take(&mut self, record: Record, frames: &mut Vec<Frame>) -> bool {
        let Record { at, link, segment, is_udp, mut is_held, frame } = record;
        if is_held && nanoseconds().saturating_sub(at) > STALE {
            self.faults.stale += 1;
            is_held = false;
        }
        let mut frame = match Frame::new(link, frame, segment, is_udp) {
            Ok(frame) => frame,
            Err(_) => {
                // Its receiver drops it too.
                self.faults.malformed += 1;
                return false;
            }
        };
        if is_udp && frame.complete() == Checksum::Wrong {
            self.faults.malformed += 1;
            return false;
        }
        let Some(pod) = self.pods.get(&link).cloned() else {
            frames.extend(Some(frame).filter(|_| is_held));
            return false;
        };
        let (now, received) = (now(), Time(at / 1_000_000));
        let messages = match frame.segment() {
            Segment::Udp(message) => vec![message.to_vec()],
            Segment::Tcp { port, sequence, is_first, is_last, payload } => {
                let key = StreamKey { link, server: frame.source(), port };
                self.streams.add(key, sequence, is_first, is_last, payload, now)
            }
        };
        let mut frame = Some(frame).filter(|_| is_held);
        let mut is_new = false;
        for message in messages {
            let answer = read(&message).unwrap_or_else(|_| {
                self.faults.malformed += 1;
                Answer::none()
            });
            let learned = self.names.learn(&pod, &answer, frame.take(), received, now);
            is_new |= learned.is_new;
            frames.extend(learned.frame);
        }
        is_new
    }
}
