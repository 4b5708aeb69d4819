//! Reads objects from the API server's JSON.

mod service;
mod slice;

use crate::{ObjectName, Problem};
use serde::Deserialize;
use std::{collections::BTreeMap, fmt::Display, net::IpAddr};

/// An object that cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("not JSON of the kind: {0}")]
    Json(#[from] serde_json::Error),
    #[error("no {0}")]
    Missing(&'static str),
    /// Slices of host names.
    #[error("address type {0:?}, which no proxy serves")]
    AddressType(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMeta {
    namespace: String,
    name: String,
    creation_timestamp: Option<String>,
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
}

impl RawMeta {
    fn object_name(&self) -> Result<ObjectName, ReadError> {
        if self.name.is_empty() {
            return Err(ReadError::Missing("metadata.name"));
        }
        if self.namespace.is_empty() {
            return Err(ReadError::Missing("metadata.namespace"));
        }
        Ok(ObjectName::new(self.namespace.clone(), self.name.clone()))
    }
}

/// The cause for which no packet can be sent to the address through a Service. Link-local addresses include the EC2
/// metadata service.
fn unusable(address: IpAddr) -> Option<&'static str> {
    let link_local = match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    if address.is_unspecified() {
        Some("is the unspecified address")
    } else if address.is_loopback() {
        Some("is a loopback address")
    } else if address.is_multicast() || address == IpAddr::V4(std::net::Ipv4Addr::BROADCAST) {
        Some("is a multicast or broadcast address")
    } else if link_local {
        Some("is a link-local address")
    } else {
        None
    }
}

/// Parts that are left out.
#[derive(Debug, Default)]
struct Problems(Vec<Problem>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, cause: impl Display) {
        self.0.push(Problem { field: field.into(), cause: cause.to_string() });
    }

    /// The value, or `None` with a problem.
    fn ok<T, E: Display>(
        &mut self,
        field: impl FnOnce() -> String,
        read: Result<T, E>,
    ) -> Option<T> {
        read.map_err(|error| self.add(field(), error)).ok()
    }

    /// A port from 1 to 65535.
    fn port(&mut self, field: impl FnOnce() -> String, number: i64) -> Option<u16> {
        match u16::try_from(number) {
            Ok(port) if port > 0 => Some(port),
            _ => {
                self.add(field(), format!("{number} is no port from 1 to 65535"));
                None
            }
        }
    }
}
