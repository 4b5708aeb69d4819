//! Where programs listen: at an address, or at all of the host's.

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};
use tokio::net::TcpListener;

/// Listens there. `[::]` is every address of both families; on a host without IPv6, those of IPv4.
///
/// # Errors
/// When the place is taken, or none of the host's.
pub async fn bind(at: SocketAddr) -> io::Result<TcpListener> {
    let bound = TcpListener::bind(at).await;
    let everywhere = at.is_ipv6() && at.ip().is_unspecified();
    match bound {
        Err(err) if everywhere && without_ipv6(&err) => {
            TcpListener::bind((Ipv4Addr::UNSPECIFIED, at.port())).await
        }
        bound => bound,
    }
}

/// Whether the kernel knows no such family, or has it switched off.
fn without_ipv6(err: &io::Error) -> bool {
    const EAFNOSUPPORT: i32 = 97;
    err.raw_os_error() == Some(EAFNOSUPPORT) || err.kind() == io::ErrorKind::AddrNotAvailable
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::net::{IpAddr, Ipv6Addr};
    use tokio::net::TcpStream;

    #[tokio::test]
    async fn all_addresses_are_those_of_both_families() {
        let listener = bind((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
        // A machine may be without IPv6; then the listener has said so.
        if listener.local_addr().unwrap().is_ipv6() {
            let to: IpAddr = Ipv6Addr::LOCALHOST.into();
            TcpStream::connect((to, port)).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_place_that_is_taken_is_told() {
        let first = bind((Ipv6Addr::UNSPECIFIED, 0).into()).await.unwrap();
        let port = first.local_addr().unwrap().port();
        let second = bind((Ipv6Addr::UNSPECIFIED, port).into()).await.unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::AddrInUse);
    }

    #[tokio::test]
    async fn one_address_is_that_address() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        assert_eq!(listener.local_addr().unwrap().ip(), IpAddr::from(Ipv4Addr::LOCALHOST));
    }

    #[test]
    fn a_kernel_without_ipv6_is_told_from_a_place_that_is_taken() {
        assert!(without_ipv6(&io::Error::from_raw_os_error(97)));
        assert!(without_ipv6(&io::Error::from(io::ErrorKind::AddrNotAvailable)));
        assert!(!without_ipv6(&io::Error::from(io::ErrorKind::AddrInUse)));
    }
}
