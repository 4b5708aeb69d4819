//! The contract that every backend passes ([`contract_suite`]), and a backend in memory that keeps it ([`Fake`]).
//!
//! A backend is judged alone and behind the agent's core ([`agent::Agent`]). A backend that can fail on purpose
//! provides [`Faults`]; the tests that require them are skipped for one that enforces nothing.

pub mod agent;
pub mod contract;
mod fake;
pub mod world;

pub use fake::{Call, Fake, FakeBackend};

use datapath_backend::Backend;
use std::collections::BTreeMap;

/// A backend under test and the kernel that it programs. The kernel's state outlives the backend's process.
pub trait Subject {
    type Backend: Backend;

    /// Starts a process of the backend over the state that an earlier process left.
    fn start(&self) -> Self::Backend;

    /// The state in force, comparable; `None` for a backend that enforces nothing.
    fn in_force(&self) -> Option<BTreeMap<String, String>>;

    /// The faults that can be caused; `None` for a backend that enforces nothing.
    fn faults(&self) -> Option<&dyn Faults>;
}

/// Faults that a test causes.
pub trait Faults {
    /// Makes the kernel refuse this endpoint, or accept it again.
    fn refuse_endpoint(&self, uid: &str, refused: bool);

    /// Removes the state of an endpoint as another process would, and has the backend notice it by itself or not.
    fn remove_endpoint(&self, uid: &str, noticed: bool);

    /// Kills the backend's process after this number of effects from now.
    fn cut_after(&self, effects: usize);

    /// The number of effects since the start.
    fn effects(&self) -> usize;
}

/// Creates one test for each part of the contract. The expression creates the subject. The function decides by the name of
/// a test whether the machine can run it.
#[macro_export]
macro_rules! contract_suite {
    ($name:ident, $subject:expr) => {
        $crate::contract_suite!($name, $subject, |_: &str| true);
    };
    ($name:ident, $subject:expr, $can_run:expr) => {
        mod $name {
            use super::*;

            $crate::contract_suite!(@each $subject, $can_run,
                a_whole_state_is_in_force_and_observed,
                an_older_revision_is_refused,
                a_set_of_changes_has_the_effect_of_a_full_pass,
                a_state_that_is_in_force_needs_no_effect,
                a_failing_endpoint_holds_its_own_pod_only,
                a_state_that_is_removed_externally_is_repaired,
                a_process_that_is_killed_at_any_effect_is_completed_by_the_next,
                a_backend_that_retires_keeps_or_removes_its_state,
                a_trace_is_followed_or_refused,
            );
        }
    };
    (@each $subject:expr, $can_run:expr, $($test:ident,)+) => {
        $(
            #[tokio::test]
            async fn $test() {
                let can_run: fn(&str) -> bool = $can_run;
                if !can_run(stringify!($test)) {
                    return;
                }
                $crate::contract::$test(|| $subject).await;
            }
        )+
    };
}
