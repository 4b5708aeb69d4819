//! Locks of shared state that end the process if a holder panicked.
//!
//! A panic under a lock leaves a partial change. A tokio task that panics does not end its process, so other tasks would
//! use the partial change and send it to nodes. After the abort, the supervisor starts the process again, and the process
//! observes its state again. A panic outside of a lock ends its task only: a request that panics does not
//! restart a replica.

use std::{
    io::{self, Write as _},
    panic::Location,
    process,
    sync::{LockResult, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

/// Locks a mutex. Aborts the process if a holder panicked.
#[track_caller]
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    guard(mutex.lock())
}

/// Locks for reading. Aborts the process if a writer panicked.
#[track_caller]
pub fn read<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    guard(lock.read())
}

/// Locks for writing. Aborts the process if a writer panicked.
#[track_caller]
pub fn write<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    guard(lock.write())
}

#[track_caller]
fn guard<G>(locked: LockResult<G>) -> G {
    locked.unwrap_or_else(|_poisoned| {
        let at = Location::caller();
        // The process ends in any case, also without a standard error.
        let _ = writeln!(
            io::stderr(),
            "cannot lock the state at {at}: a thread panicked while it changed the state; the process ends, and its \
             supervisor starts it again (the panic is reported above)"
        );
        process::abort()
    })
}
