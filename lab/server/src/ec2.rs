//! The EC2 Query protocol: a form in, XML out.

mod params;
mod requests;
mod signature;
mod xml;

use crate::{
    http::{FullRequest, HttpService, Reply, typed},
    live::LiveCloud,
};
use bytes::Bytes;
use config_model::Span;
use http_body_util::Full;
use hyper::{Method, Response as HttpResponse, header};
use lab_cloud::{Action, CallError, Caller, Document, Ec2Error, Response};
use params::Params;
use std::{
    net::SocketAddr,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::net::TcpStream;
use xml::{NAMESPACE, Xml};

/// The EC2 endpoint of a cloud.
pub(crate) struct Endpoint {
    cloud: LiveCloud,
    served: AtomicU64,
}

impl Endpoint {
    pub(crate) fn new(cloud: LiveCloud) -> Self {
        Self { cloud, served: AtomicU64::new(0) }
    }

    async fn call(&self, request: &FullRequest) -> (String, Result<Response, CallError>) {
        let (mut params, key) = match read(request) {
            Ok(read) => read,
            Err(err) => return (UNKNOWN.to_owned(), Err(err.into())),
        };
        let action = match action(&mut params) {
            Ok(action) => action,
            Err(err) => return (UNKNOWN.to_owned(), Err(err.into())),
        };
        (action.name().to_owned(), self.act(action, params, key).await)
    }

    async fn act(
        &self,
        action: Action,
        params: Params,
        key: Option<String>,
    ) -> Result<Response, CallError> {
        let request = requests::parse(action, params)
            .map_err(|err| Ec2Error::new(err.code(), err.to_string()))?;
        let caller = self.caller(key.as_deref())?;
        let Span(latency_ms) = self.cloud.with(|cloud, now| cloud.latency(now, action));
        let half = Duration::from_millis(latency_ms) / 2;
        tokio::time::sleep(half).await;
        let answer = self.cloud.with(|cloud, now| cloud.call(now, &caller, request));
        tokio::time::sleep(half).await;
        if answer.is_ok() && self.cloud.loses(action) { Err(CallError::ReplyLost) } else { answer }
    }

    /// Long-lived keys are the operator's, whatever they are; temporary ones must be ours.
    fn caller(&self, key: Option<&str>) -> Result<Caller, Ec2Error> {
        let known = key.and_then(|key| self.cloud.with(|cloud, _| cloud.caller_of(key)));
        match (known, key) {
            (Some(caller), _) => Ok(caller),
            (None, Some(key)) if key.starts_with("ASIA") => Err(Ec2Error::auth_failure()),
            (None, _) => Ok(Caller::Administrator),
        }
    }

    fn request_id(&self) -> String {
        let served = self.served.fetch_add(1, Ordering::Relaxed);
        format!("{:08x}-0000-4000-8000-{served:012x}", std::process::id())
    }
}

impl HttpService for Endpoint {
    fn accepted(&self, stream: &TcpStream, _peer: SocketAddr) {
        let _ = stream.set_nodelay(true);
    }

    async fn answer(&self, request: FullRequest, peer: SocketAddr) -> Reply {
        let (action, result) = self.call(&request).await;
        let id = self.request_id();
        let outcome = match &result {
            Ok(_) => "ok",
            Err(CallError::Refused(err)) => &err.code,
            Err(CallError::ReplyLost) => "reply-lost",
        };
        self.cloud.count_call(&action, outcome);
        tracing::info!(action, outcome, %peer, id, "EC2");
        match result {
            Ok(response) => {
                let document = response.document(self.cloud.epoch_unix_ms());
                Reply::Answer(xml(200, success(&action, &id, &document)))
            }
            Err(CallError::Refused(err)) => Reply::Answer(xml(err.http_status, refusal(&id, &err))),
            Err(CallError::ReplyLost) => Reply::Lost,
        }
    }
}

/// The parameters and the access key of a request.
fn read(request: &FullRequest) -> Result<(Params, Option<String>), Ec2Error> {
    let query = request.uri().query();
    let header = request.headers().get(header::AUTHORIZATION).and_then(|v| v.to_str().ok());
    let key = signature::access_key(header, query);
    match *request.method() {
        Method::POST => Ok((Params::parse(request.body()), key)),
        Method::GET => Ok((Params::parse(query.unwrap_or_default().as_bytes()), key)),
        _ => Err(Ec2Error::new("InvalidRequest", "The request must be a GET or a POST.")),
    }
}

fn action(params: &mut Params) -> Result<Action, Ec2Error> {
    let missing =
        || Ec2Error::new("MissingAction", "The request must contain the parameter Action");
    let action = params.text("Action").ok_or_else(missing)?.parse()?;
    // Every version is taken for ours: SDKs of years agree on the parameters that we have.
    params.text("Version");
    params.drop_signature();
    Ok(action)
}

fn success(action: &str, id: &str, document: &Document) -> Vec<u8> {
    Xml::document(&format!("{action}Response"), &[("xmlns", NAMESPACE)], |xml| {
        xml.text("requestId", id);
        write_body(xml, document);
    })
}

/// The outermost fields are beside `requestId`. Actions without an answer have the element `return`.
fn write_body(xml: &mut Xml, document: &Document) {
    match document {
        Document::Fields(fields) => {
            for (name, value) in fields {
                write_element(xml, name, value);
            }
        }
        Document::Text(_) | Document::Set(_) => write_element(xml, "return", document),
    }
}

fn write_element(xml: &mut Xml, name: &str, value: &Document) {
    match value {
        Document::Text(text) => xml.text(name, text),
        Document::Fields(_) => xml.within(name, |xml| write_body(xml, value)),
        Document::Set(members) => xml.within(name, |xml| {
            for member in members {
                write_element(xml, "item", member);
            }
        }),
    }
}

fn refusal(id: &str, err: &Ec2Error) -> Vec<u8> {
    Xml::document("Response", &[], |xml| {
        xml.within("Errors", |xml| {
            xml.within("Error", |xml| {
                xml.text("Code", &err.code);
                xml.text("Message", &err.message);
            });
        });
        xml.text("RequestID", id);
    })
}

fn xml(status: u16, body: Vec<u8>) -> HttpResponse<Full<Bytes>> {
    typed(status, "text/xml;charset=UTF-8", body)
}

/// Under this name calls are counted that are of no action.
const UNKNOWN: &str = "(unknown)";
