//! The memory of the process.
#![expect(unsafe_code, reason = "the C library's allocator has no safe interface")]

use nix::libc::{M_ARENA_MAX, mallopt};

/// Limits the C library's allocator to two arenas: one of the main thread, and one of all other threads. An arena keeps
/// memory that only its threads use again. Returns false if the allocator refuses.
#[must_use]
pub fn limit_arenas() -> bool {
    // SAFETY: the call changes a setting of the allocator, under its own lock.
    unsafe { mallopt(M_ARENA_MAX, ARENAS) == 1 }
}

const ARENAS: i32 = 2;

#[cfg(test)]
mod tests {
    #[test]
    fn the_allocator_accepts_the_limit() {
        assert!(super::limit_arenas());
    }
}
