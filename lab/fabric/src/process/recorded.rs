//! A process by pid and start time.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::fs;

/// A process. The start time distinguishes it from a later process with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Recorded {
    /// The process id.
    pub pid: i32,
    /// Clock ticks from boot to its start (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// Description of the process, for people.
    pub what: String,
}

impl Recorded {
    /// Notes a running process; `None` when there is none.
    pub fn of(pid: i32, what: &str) -> Option<Self> {
        let start_time = Stat::of(pid)?.start_time;
        Some(Self { pid, start_time, what: what.to_owned() })
    }

    /// True if it still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start_time == self.start_time && !stat.is_dead)
    }

    pub(super) fn signal(&self, signal: Signal) {
        // The process can end between the check and the signal. Only a reuse of its pid would be a danger, and the
        // start time was compared just now.
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

struct Stat {
    start_time: u64,
    is_dead: bool,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The command's name, field 2, may hold spaces and parentheses: count from its end.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.rsplit_once(')')?.1.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        Some(Self { start_time: fields.nth(18)?.parse().ok()?, is_dead })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_pid() {
        let me = Recorded::of(Pid::this().as_raw(), "this test").expect("this process runs");
        assert!(me.is_alive());
        assert!(!Recorded { start_time: me.start_time + 1, ..me }.is_alive());
    }

    #[test]
    fn a_command_named_like_a_status_line_does_not_confuse() {
        let line = "7 (a) S (b) Z 1 7 7 0 -1 4 0 0 0 0 1 2 0 0 20 0 1 0 4711 9 9";
        let stat = Stat::parse(line).expect("a status line");
        assert_eq!((stat.start_time, stat.is_dead), (4711, true));
    }
}
