use super::*;

const LONG: Duration = Duration::from_secs(600);

fn preauth(preauth: usize, share: usize) -> Arc<PreauthLimiter> {
    PreauthLimiter::new(Bounds { preauth, share, v6_prefix: 64, within: LONG, fair: LONG })
}

fn ip(text: &str) -> IpAddr {
    source(text.parse().expect("an address"), 64)
}

#[test]
fn an_address_with_more_than_its_share_gives_way_to_others_and_gets_no_more() {
    let preauth = preauth(4, 2);
    let (greedy, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
    let mut greeds: Vec<_> = (0..4).map(|_| preauth.try_enter(greedy).expect("a place")).collect();
    assert_eq!(preauth.try_enter(greedy).err(), Some(Full::Refused));
    let (_place, mut leave) = preauth.try_enter(other).expect("a place");
    // The oldest connection was evicted.
    let gone = greeds.iter_mut().map(|(_, leave)| leave.try_recv());
    let gone: Vec<bool> =
        gone.map(|left| left == Err(oneshot::error::TryRecvError::Closed)).collect();
    assert_eq!(gone, [true, false, false, false]);
    assert_eq!(preauth.try_enter(greedy).err(), Some(Full::Refused));
    let _second = preauth.try_enter(other).expect("a place");
    assert_eq!(leave.try_recv(), Err(oneshot::error::TryRecvError::Empty));
    // No address has more than its share now.
    assert_eq!(preauth.try_enter(other).err(), Some(Full::Refused));
    let waits = preauth.try_enter(ip("10.0.0.3")).err();
    assert!(matches!(waits, Some(Full::For(pause)) if pause <= LONG), "{waits:?}");
}

#[test]
fn a_connection_in_review_keeps_its_place_until_its_token_is_refused() {
    let preauth = preauth(2, 1);
    let (many, other) = (ip("10.0.0.1"), ip("10.0.0.2"));
    let places: Vec<_> = (0..2).map(|_| preauth.try_enter(many).expect("a place")).collect();
    let _reviews: Vec<_> = places.iter().map(|(place, _)| place.0.review()).collect();
    assert!(matches!(preauth.try_enter(other), Err(Full::For(_))));
    places.iter().for_each(|(place, _)| place.0.refused());
    assert!(preauth.try_enter(other).is_ok());
}

#[test]
fn a_network_of_ipv6_is_one_address() {
    assert_eq!(ip("2001:db8:0:1::1"), ip("2001:db8:0:1:ffff::2"));
    assert_ne!(ip("2001:db8:0:1::1"), ip("2001:db8:0:2::1"));
    let of = |text: &str, prefix| source(text.parse().expect("an address"), prefix);
    assert_ne!(of("2001:db8:0:1::1", 128), of("2001:db8:0:1::2", 128), "pods of one subnet");
    assert_eq!(of("2001:db8::1", 0), of("2001:dba::2", 0));
    assert_eq!(ip("::ffff:10.0.0.1"), ip("10.0.0.1"));
    assert_ne!(ip("::ffff:10.0.0.1"), ip("::ffff:10.0.0.2"));
}
