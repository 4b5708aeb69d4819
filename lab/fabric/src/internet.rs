//! The internet gateway's wire and the one host beyond it.

use crate::{
    FabricError, Vpc,
    namespace::NamespaceSet,
    router::{IMDS, INTERNET_INDEX, INTERNET_PORT},
    sysctl::write_sysctl,
    tool,
};
use ipnet::Ipv4Net;
use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

/// The internet's one host; answers ICMP echo, and echoes on TCP and UDP port 7 while an
/// [`InternetHost`] lives.
pub const INTERNET_HOST: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// The host's addresses: programs on it can bind each one of them. No block of a VPC may overlap them.
pub const INTERNET_ADDRESSES: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 0), 24);

/// Addresses of the internet's host besides [`INTERNET_HOST`], for programs that act as several clients.
pub const FURTHER_CLIENTS: Ipv4Net = Ipv4Net::new_assert(Ipv4Addr::new(192, 0, 2, 64), 26);

/// The same host's IPv6 address, where the VPC has IPv6.
pub const INTERNET_HOST_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1);

/// The gateway's own address on the wire to the internet.
const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 254);

/// The host's end of that wire.
const HOST_PORT: &str = "wire";

/// EC2's internet gateways pass no larger packets.
const INTERNET_MTU: u32 = 1500;

/// Lays the wire; runs inside the VPC namespace.
pub(crate) fn connect(internet_pin: &Path, vpc: &Vpc) -> Result<(), FabricError> {
    let pin = internet_pin.display();
    let mut script = format!(
        "link add {INTERNET_PORT} index {INTERNET_INDEX} mtu {INTERNET_MTU} type veth peer name {HOST_PORT} mtu {INTERNET_MTU} \
         netns {pin}\n\
         address add {GATEWAY}/24 dev {INTERNET_PORT}\n\
         link set {INTERNET_PORT} up\n\
         route add default via {INTERNET_HOST} dev {INTERNET_PORT}\n"
    );
    if has_v6(vpc) {
        script += &format!(
            "address add {GATEWAY_V6}/64 dev {INTERNET_PORT} nodad\n\
             route add default via {INTERNET_HOST_V6} dev {INTERNET_PORT}\n"
        );
    }
    tool::ip_batch(&script, "connect the internet")?;
    // The gateway answers for its own address alone.
    write_sysctl(&format!("net/ipv4/conf/{INTERNET_PORT}/proxy_arp"), "0")
}

/// Sets up the host; runs inside its namespace, once the wire is there.
pub(crate) fn set_up_host(vpc: &Vpc) -> Result<(), FabricError> {
    write_sysctl("net/ipv4/icmp_ratelimit", "0")?;
    let mut script = format!(
        "link set lo up\n\
         address add {INTERNET_HOST}/24 dev {HOST_PORT}\n\
         link set dev {HOST_PORT} up\n\
         route add default via {GATEWAY} dev {HOST_PORT}\n\
         route add local {FURTHER_CLIENTS} dev lo\n\
         route add blackhole {IMDS}/32\n"
    );
    if has_v6(vpc) {
        write_sysctl("net/ipv6/conf/all/disable_ipv6", "0")?;
        script += &format!(
            "address add {INTERNET_HOST_V6}/64 dev {HOST_PORT} nodad\n\
             route add default via {GATEWAY_V6} dev {HOST_PORT}\n"
        );
    }
    tool::ip_batch(&script, "set up the internet's host")
}

/// IPv6 addresses are public, so the gateway does not translate them.
fn has_v6(vpc: &Vpc) -> bool {
    !vpc.cidrs_v6.is_empty()
}

/// The echo service on [`INTERNET_HOST`]; ends when dropped.
#[derive(Debug)]
pub struct InternetHost {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl InternetHost {
    pub(crate) fn start(place: &NamespaceSet, vpc: &Vpc) -> Result<Self, FabricError> {
        let v6 = has_v6(vpc).then_some(IpAddr::V6(INTERNET_HOST_V6));
        let hosts = [IpAddr::V4(INTERNET_HOST)].into_iter().chain(v6);
        let hosts = hosts.map(|host| SocketAddr::new(host, ECHO_PORT));
        let open = |at| -> io::Result<(TcpListener, UdpSocket)> {
            let (tcp, udp) = (TcpListener::bind(at)?, UdpSocket::bind(at)?);
            tcp.set_nonblocking(true)?;
            udp.set_read_timeout(Some(POLL))?;
            Ok((tcp, udp))
        };
        let stop = Arc::new(AtomicBool::new(false));
        let mut service = Self { stop: Arc::clone(&stop), threads: Vec::new() };
        for at in hosts {
            let (tcp, udp) = place.run(|| open(at))?.map_err(|cause| FabricError::Socket {
                action: "open the echo service",
                place: place.name.clone(),
                cause,
            })?;
            let (tcp_stop, udp_stop) = (Arc::clone(&stop), Arc::clone(&stop));
            service.threads.push(thread::spawn(move || serve_tcp(&tcp, &tcp_stop)));
            service.threads.push(thread::spawn(move || serve_udp(&udp, &udp_stop)));
        }
        Ok(service)
    }
}

impl Drop for InternetHost {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // The panic of an echo thread has no result to report.
            let _ = thread.join();
        }
    }
}

fn serve_tcp(listener: &TcpListener, stop: &Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => {
                let stop = Arc::clone(stop);
                thread::spawn(move || echo(stream, &stop));
            }
            Err(_) => thread::sleep(POLL),
        }
    }
}

/// Ends with its client, or with the service at the next pause.
fn echo(mut stream: TcpStream, stop: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    let ready = stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(POLL)));
    if ready.is_err() {
        return;
    }
    while !stop.load(Ordering::Relaxed) {
        match stream.read(&mut buffer) {
            Ok(0) => return,
            Ok(length) if stream.write_all(&buffer[..length]).is_err() => return,
            Ok(_) => {}
            Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(_) => return,
        }
    }
}

fn serve_udp(socket: &UdpSocket, stop: &AtomicBool) {
    let mut buffer = vec![0; 65_536];
    while !stop.load(Ordering::Relaxed) {
        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
            // A lost echo is the network's right.
            let _ = socket.send_to(&buffer[..length], from);
        }
    }
}

const ECHO_PORT: u16 = 7;
const POLL: Duration = Duration::from_millis(50);
