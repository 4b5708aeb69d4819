//! The contract for the backends of this release and for the fake backend.

use datapath_backend::NoBackend;
use std::collections::BTreeMap;
use tests_datapath::{Call, Fake, Faults, Subject, contract_suite, world};

/// The backend `none`, which keeps its state in its own process only.
struct Unenforced;

impl Subject for Unenforced {
    type Backend = NoBackend;

    fn start(&self) -> NoBackend {
        NoBackend::default()
    }

    fn in_force(&self) -> Option<BTreeMap<String, String>> {
        None
    }

    fn faults(&self) -> Option<&dyn Faults> {
        None
    }
}

contract_suite!(none, Unenforced);
contract_suite!(fake, Fake::default());

/// A pod that is attached before its rows are written would be judged without them.
#[tokio::test]
async fn the_fake_writes_rows_before_it_attaches_a_pod_and_deletes_them_last() {
    use datapath_backend::Backend as _;

    let fake = Fake::default();
    let mut series = world::Series::new();
    let state = series.next([world::policy(1, &[1]), vec![world::entry(1)]].concat(), &[1]);
    fake.start().apply(&state).await;
    let calls = fake.calls();
    assert!(matches!(calls.last(), Some(Call::Attach(..))), "{calls:?}");
    assert_eq!(calls.iter().filter(|call| matches!(call, Call::WriteRow(..))).count(), 3);
}
