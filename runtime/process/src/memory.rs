//! The memory of the process.
#![expect(unsafe_code, reason = "the C library's allocator has no safe interface")]

use nix::libc::{M_ARENA_MAX, mallopt};
use std::time::{Duration, Instant};

/// Limits the C library's allocator to two arenas: one of the main thread, and one of all other threads. An arena keeps
/// memory that only its threads use again. Returns false if the allocator refuses.
#[must_use]
pub fn limit_arenas() -> bool {
    // SAFETY: the call changes a setting of the allocator, under its own lock.
    unsafe { mallopt(M_ARENA_MAX, ARENAS) == 1 }
}

/// Returns free memory to the kernel. The allocator keeps free memory below memory that is in use otherwise. Threads that
/// allocate may wait for some milliseconds.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call changes free memory only, under the allocator's own locks.
    unsafe {
        nix::libc::malloc_trim(0);
    }
}

/// The time after the work on many changes, which has left free memory.
#[derive(Debug, Default)]
pub struct FreeMemory {
    changes: usize,
    due: Option<Instant>,
}

impl FreeMemory {
    /// Notes work on this number of changed objects.
    pub fn note(&mut self, changes: usize, now: Instant) {
        self.changes = self.changes.saturating_add(changes);
        if self.changes >= MANY {
            self.due.get_or_insert(now + AFTER);
        }
    }

    /// True once, some seconds after many changes: [`trim`] then finds much free memory.
    pub fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.due.is_some_and(|at| now >= at);
        if is_due {
            *self = Self::default();
        }
        is_due
    }
}

const ARENAS: i32 = 2;
/// Fewer changed objects leave little free memory.
pub const MANY: usize = 4096;
/// The work on changes has ended by then, and so have writes to the disk.
const AFTER: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_allocator_accepts_the_limit() {
        assert!(limit_arenas());
    }

    #[test]
    fn many_changes_are_due_once_after_the_work() {
        let start = Instant::now();
        let mut free = FreeMemory::default();
        free.note(MANY - 1, start);
        assert!(!free.is_due(start + AFTER * 2));
        free.note(1, start);
        // Later changes do not defer it.
        free.note(MANY, start + AFTER / 2);
        assert!(!free.is_due(start + AFTER / 2));
        assert!(free.is_due(start + AFTER));
        assert!(!free.is_due(start + AFTER * 2));
    }

    /// The resident memory in pages.
    #[cfg(target_env = "gnu")]
    fn resident() -> u64 {
        let numbers = std::fs::read_to_string("/proc/self/statm").expect("numbers of pages");
        numbers.split(' ').nth(1).and_then(|pages| pages.parse().ok()).expect("resident pages")
    }

    #[cfg(target_env = "gnu")]
    #[test]
    fn free_memory_below_used_memory_returns_to_the_kernel() {
        // Small blocks come from the heap. Every hundredth one stays.
        let mut blocks: Vec<Vec<u8>> = (0..64_000).map(|_| vec![1; 1024]).collect();
        let mut number = 0;
        blocks.retain(|_| {
            number += 1;
            number % 100 == 0
        });
        let before = resident();
        trim();
        let after = resident();
        assert!(after + 8000 < before, "{before} pages before, {after} pages after");
        assert_eq!(blocks.len(), 640);
    }
}
