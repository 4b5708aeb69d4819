//! The instance metadata service: its answers, and the hops that they can travel.

use super::chain;
use cli_doctor::{Imds, Metadata, Observed};
use cli_migrate::Eni;
use config_model::{CardIndex, DeviceIndex, Mac};
use http_body_util::{BodyExt as _, Empty};
use hyper::{Method, Request, StatusCode, Uri, body::Bytes, client::conn::http1};
use hyper_util::rt::TokioIo;
use ipnet::IpNet;
use nix::{
    setsockopt_impl,
    sys::socket::{setsockopt, sockopt::SetStruct},
};
use std::{net::IpAddr, time::Duration};
use tokio::{net::TcpStream, time::timeout};

/// The socket option `IP_MINTTL`: the kernel drops packets with fewer hops left.
#[derive(Clone, Debug)]
struct MinTtl;

setsockopt_impl!(
    MinTtl,
    libc::IPPROTO_IP,
    libc::IP_MINTTL,
    libc::c_int,
    SetStruct<'_, libc::c_int>
);

const MACS: &str = "/latest/meta-data/network/interfaces/macs/";
/// IMDS is one hop away; a slower answer will not arrive.
const PATIENCE: Duration = Duration::from_secs(2);
/// An answer with one hop left stops at this node. With two hops left it reaches a pod.
const REACHES_PODS: i32 = 2;
/// Longer than any list of MAC addresses.
const MOST_BYTES: usize = 64 * 1024;

/// Reads the service at `endpoint`.
pub(super) fn ask(endpoint: &str) -> Imds {
    runtime()?.block_on(async {
        let service = Service::new(endpoint)?;
        let token = service.arrived(service.token(None).await)?;
        let primary = service.get("/latest/meta-data/mac", &token).await;
        let primary = service.arrived(primary)?;
        let macs = service.get(MACS, &token).await;
        let macs = service.arrived(macs)?;
        let enis = macs.lines().map(|line| mac(line.trim_end_matches('/')));
        Ok(Metadata {
            primary: Some(mac(&primary)?),
            enis: enis.collect::<Observed<_>>()?,
            reaches_pods: service.reaches(REACHES_PODS).await,
        })
    })
}

/// Returns every ENI of the node with its addresses.
pub(crate) fn enis(endpoint: &str) -> Observed<Vec<Eni>> {
    runtime()?.block_on(async {
        let service = Service::new(endpoint)?;
        let token = service.arrived(service.token(None).await)?;
        let macs = service.arrived(service.get(MACS, &token).await)?;
        let mut enis = Vec::new();
        for name in macs.lines().map(|line| line.trim_end_matches('/')) {
            let of =
                async |what: &str| service.lines(&format!("{MACS}{name}/{what}"), &token).await;
            let number = async |what: &str| match of(what).await?.first() {
                Some(text) => {
                    text.parse().map_err(|err| chain(&format!("cannot read {what}"), &err))
                }
                None => Ok(0),
            };
            let mut blocks = Vec::new();
            for kind in ["local-ipv4s", "ipv4-prefix", "ipv6s", "ipv6-prefix"] {
                for text in of(kind).await? {
                    blocks.push(block(&text)?);
                }
            }
            let (device, card) = (
                DeviceIndex(number("device-number").await?),
                CardIndex(number("network-card").await?),
            );
            enis.push(Eni { mac: mac(name)?, card, device, blocks });
        }
        Ok(enis)
    })
}

/// Parses a prefix or a single address.
fn block(text: &str) -> Observed<IpNet> {
    let alone = || text.parse::<IpAddr>().map(IpNet::from);
    text.parse()
        .or_else(|_| alone())
        .map_err(|err| chain(&format!("cannot parse the address {text:?}"), &err))
}

pub(crate) fn runtime() -> Observed<tokio::runtime::Runtime> {
    let made = tokio::runtime::Builder::new_current_thread().enable_all().build();
    made.map_err(|err| chain("cannot start the async runtime", &err))
}

fn mac(text: &str) -> Observed<Mac> {
    text.trim().parse().map_err(|err| chain("cannot parse a MAC from the metadata service", &err))
}

struct Service {
    authority: String,
}

impl Service {
    fn new(endpoint: &str) -> Observed<Self> {
        let uri: Uri = endpoint
            .parse()
            .map_err(|err| chain(&format!("cannot parse the URL {endpoint:?}"), &err))?;
        let host = uri.host().ok_or_else(|| format!("the URL {endpoint:?} has no host"))?;
        if uri.scheme_str() != Some("http") {
            return Err(format!("the URL {endpoint:?} does not start with http://"));
        }
        Ok(Self { authority: format!("{host}:{}", uri.port_u16().unwrap_or(80)) })
    }

    /// Returns true if an answer has this number of hops left; `None` if that is unknown. The service has just answered, so a
    /// timeout means that the kernel dropped the answer.
    async fn reaches(&self, hops: i32) -> Option<bool> {
        match self.token(Some(hops)).await {
            Some(Ok(_)) => Some(true),
            Some(Err(_)) => None,
            None => Some(false),
        }
    }

    /// The answer, if it arrived.
    fn arrived(&self, answer: Option<Observed<String>>) -> Observed<String> {
        answer.unwrap_or_else(|| {
            Err(format!("no answer from http://{} within {} s", self.authority, PATIENCE.as_secs()))
        })
    }

    async fn token(&self, hops_left: Option<i32>) -> Option<Observed<String>> {
        let headers = [("x-aws-ec2-metadata-token-ttl-seconds", "60")];
        self.call(Method::PUT, "/latest/api/token", headers, hops_left).await
    }

    async fn get(&self, path: &str, token: &str) -> Option<Observed<String>> {
        self.call(Method::GET, path, [("x-aws-ec2-metadata-token", token)], None).await
    }

    /// Returns the lines of a file; empty if the service has no such file.
    async fn lines(&self, path: &str, token: &str) -> Observed<Vec<String>> {
        match self.arrived(self.get(path, token).await) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(why) if why.ends_with(&StatusCode::NOT_FOUND.to_string()) => Ok(Vec::new()),
            Err(why) => Err(why),
        }
    }

    /// Returns the answer or the error; `None` after a timeout.
    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: [(&str, &str); 1],
        hops_left: Option<i32>,
    ) -> Option<Observed<String>> {
        let tried = format!("{method} http://{}{path}", self.authority);
        match self.request(method, path, headers) {
            Ok(request) => timeout(PATIENCE, self.answer(request, hops_left, &tried)).await.ok(),
            Err(err) => Some(Err(chain(&tried, &err))),
        }
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        headers: [(&str, &str); 1],
    ) -> Result<Request<Empty<Bytes>>, hyper::http::Error> {
        let [(name, value)] = headers;
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", &self.authority)
            .header(name, value)
            .body(Empty::new())
    }

    async fn answer(
        &self,
        request: Request<Empty<Bytes>>,
        hops_left: Option<i32>,
        tried: &str,
    ) -> Observed<String> {
        let stream = TcpStream::connect(&self.authority).await.map_err(|err| chain(tried, &err))?;
        if let Some(hops) = hops_left {
            // The option is set after the handshake: the hop limit applies to the answer.
            setsockopt(&stream, MinTtl, &hops).map_err(|err| chain(tried, &err))?;
        }
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|err| chain(tried, &err))?;
        let connection = tokio::spawn(connection);
        let answer = sender.send_request(request).await.map_err(|err| chain(tried, &err))?;
        let status = answer.status();
        if status != StatusCode::OK {
            return Err(format!("{tried}: {status}"));
        }
        let body = http_body_util::Limited::new(answer.into_body(), MOST_BYTES);
        let body = body.collect().await.map_err(|err| format!("{tried}: {err}"))?.to_bytes();
        connection.abort();
        Ok(String::from_utf8_lossy(&body).into_owned())
    }
}
