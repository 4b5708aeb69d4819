#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use std::{cell::RefCell, collections::BTreeSet, io};

fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

fn socket(cookie: u64, peer: &str) -> Connected {
    let local = if peer.starts_with('[') { "[fd00::1]:40000" } else { "10.0.0.1:40000" };
    Connected { cookie, local: at(local), peer: at(peer), link: 0 }
}

/// The cookies of the sockets to close, if Services led sockets to these backends.
fn closed(sockets: &[Connected], asked: &[(u64, &str)], backends: &[&str]) -> Vec<u64> {
    let rows: BTreeSet<SocketKey> =
        asked.iter().map(|(cookie, backend)| SocketKey::of_udp(*cookie, at(backend))).collect();
    let backends: BTreeSet<SocketAddr> = backends.iter().map(|backend| at(backend)).collect();
    let stale = stale(sockets, |at| backends.contains(&at), |key| Ok(rows.contains(key)));
    stale.unwrap().iter().map(|socket| socket.cookie).collect()
}

#[test]
fn a_socket_of_a_removed_backend_is_closed_and_others_stay() {
    let sockets = [
        socket(1, "10.0.0.2:53"),
        // This process connected to the pod itself.
        socket(2, "10.0.0.2:53"),
        // Its backend exists.
        socket(3, "10.0.0.3:53"),
        // Its earlier backend is gone, and it has connected again.
        socket(4, "10.0.0.3:53"),
        // Another port of the removed pod, without a Service.
        socket(5, "10.0.0.2:5353"),
    ];
    let asked = [(1, "10.0.0.2:53"), (3, "10.0.0.3:53"), (4, "10.0.0.2:53"), (4, "10.0.0.3:53")];
    assert_eq!(closed(&sockets, &asked, &["10.0.0.3:53"]), [1]);
    assert_eq!(closed(&sockets, &asked, &["10.0.0.2:53", "10.0.0.3:53"]), [0; 0]);
    assert_eq!(closed(&sockets, &asked, &[]), [1, 3, 4]);
}

#[test]
fn a_rolling_restart_closes_the_sockets_of_each_old_pod() {
    let sockets = [1, 2, 3].map(|number| socket(number, &format!("10.0.0.{number}:53")));
    let asked = [(1, "10.0.0.1:53"), (2, "10.0.0.2:53"), (3, "10.0.0.3:53")];
    let steps: [(&[&str], &[u64]); 3] = [
        (&["10.0.0.2:53", "10.0.0.3:53", "10.0.0.11:53"], &[1]),
        (&["10.0.0.3:53", "10.0.0.11:53", "10.0.0.12:53"], &[1, 2]),
        (&["10.0.0.11:53", "10.0.0.12:53", "10.0.0.13:53"], &[1, 2, 3]),
    ];
    for (backends, expected) in steps {
        assert_eq!(closed(&sockets, &asked, backends), expected);
    }
}

#[test]
fn sockets_of_both_families_are_closed() {
    let sockets = [socket(1, "[fd00::2]:53"), socket(2, "[::ffff:10.0.0.2]:53")];
    let asked = [(1, "[fd00::2]:53"), (2, "10.0.0.2:53")];
    assert_eq!(closed(&sockets, &asked, &[]), [1, 2]);
    assert_eq!(closed(&sockets, &asked, &["10.0.0.2:53"]), [1]);
    assert_eq!(closed(&sockets, &asked, &["[fd00::2]:53"]), [2]);
}

#[test]
fn a_row_that_cannot_be_read_closes_nothing() {
    let sockets = [socket(1, "10.0.0.2:53"), socket(2, "10.0.0.2:53")];
    let unreadable = |_: &SocketKey| Err(LoadError::Stopped);
    assert!(stale(&sockets, |_| false, unreadable).is_err());
}

#[test]
fn a_pass_closes_a_limited_number_of_sockets() {
    let sockets: Vec<Connected> = (0..1030).map(|number| socket(number, "10.0.0.2:53")).collect();
    let tried = RefCell::new(0);
    let pass = close(&sockets, |socket| {
        *tried.borrow_mut() += 1;
        Ok(socket.cookie != 7)
    });
    assert_eq!(pass.unwrap(), Pass { closed: 1023, skipped: 1, left: 6 });
    assert_eq!(tried.into_inner(), MOST);
}

#[test]
fn a_refused_socket_does_not_keep_the_others() {
    let sockets = [1, 2, 3].map(|cookie| socket(cookie, "10.0.0.2:53"));
    let mut tried = Vec::new();
    let result = close(&sockets, |socket| {
        tried.push(socket.cookie);
        match socket.cookie {
            1 => Err(DiagError::CloseRefused(io::Error::from_raw_os_error(12))),
            _ => Ok(true),
        }
    });
    assert!(matches!(result, Err(LoadError::Sockets(DiagError::CloseRefused(_)))), "{result:?}");
    assert_eq!(tried, [1, 2, 3]);
    tried.clear();
    let result = close(&sockets, |socket| {
        tried.push(socket.cookie);
        Err(DiagError::NoClose)
    });
    assert!(matches!(result, Err(LoadError::Sockets(DiagError::NoClose))), "{result:?}");
    assert_eq!(tried, [1]);
}

fn nothing() -> Result<Pass, LoadError> {
    Ok(Pass::default())
}

fn some() -> Result<Pass, LoadError> {
    Ok(Pass { closed: 2, ..Pass::default() })
}

#[test]
fn a_removal_has_a_pass_after_the_grace_period_and_a_last_one_a_second_later() {
    let start = Instant::now();
    let mut closing = Closing::default();
    assert_eq!(closing.wake_at(), None);
    closing.begin(start);
    assert_eq!(closing.wake_at(), Some(start + GRACE));
    closing.settle(start + GRACE, &nothing());
    assert_eq!(closing.wake_at(), Some(start + EVERY));
    closing.settle(start + EVERY, &nothing());
    assert_eq!(closing.wake_at(), None);
    // A pass that closed sockets is followed by one that shows that none is left.
    closing.begin(start + 2 * EVERY);
    closing.settle(start + 3 * EVERY, &some());
    assert_eq!(closing.wake_at(), Some(start + 4 * EVERY));
    closing.settle(start + 4 * EVERY, &nothing());
    assert_eq!(closing.wake_at(), None);
}

#[test]
fn many_removals_share_a_pass() {
    let start = Instant::now();
    let mut closing = Closing::default();
    closing.begin(start);
    closing.begin(start + GRACE / 2);
    assert_eq!(closing.wake_at(), Some(start + GRACE), "the first one does not wait for others");
    closing.settle(start + GRACE, &some());
    closing.begin(start + 2 * GRACE);
    assert_eq!(closing.wake_at(), Some(start + GRACE + PAUSE));
}

#[test]
fn a_fault_is_tried_again_each_second_and_a_kernel_that_cannot_close_is_not() {
    let start = Instant::now();
    let mut closing = Closing::default();
    closing.begin(start);
    for second in 1..100 {
        let now = start + second * EVERY;
        closing.settle(now, &Err(DiagError::Forbidden.into()));
        assert_eq!(closing.wake_at(), Some(now + EVERY));
    }
    closing.settle(start, &Err(DiagError::NoClose.into()));
    assert_eq!(closing.wake_at(), None);
    // The next removal tries again: another module may be loaded.
    closing.begin(start + EVERY);
    assert_eq!(closing.wake_at(), Some(start + EVERY + GRACE));
}

#[test]
fn sockets_beyond_the_limit_have_the_next_pass_and_those_that_are_skipped_have_a_limited_number() {
    let start = Instant::now();
    let mut closing = Closing::default();
    closing.begin(start);
    closing.settle(start, &Ok(Pass { left: 1, closed: MOST, skipped: 0 }));
    assert_eq!(closing.wake_at(), Some(start + PAUSE));
    let mut passes = 0;
    while let Some(now) = closing.wake_at() {
        closing.settle(now, &Ok(Pass { skipped: 1, ..Pass::default() }));
        passes += 1;
    }
    assert_eq!(passes, 31);
}

#[test]
fn a_fault_is_remembered_until_a_socket_is_closed() {
    let mut closing = Closing::default();
    closing.log(&Err(DiagError::NoClose.into()));
    let fault = closing.fault.clone();
    assert!(fault.as_ref().is_some_and(|why| why.contains("CONFIG_INET_DIAG_DESTROY")));
    closing.log(&nothing());
    assert_eq!(closing.fault, fault);
    closing.log(&some());
    assert_eq!(closing.fault, None);
}
