//! `ClientToken`: asking twice makes one.

use crate::{CreateNetworkInterface, Ec2Error, NetworkInterface};
use std::collections::BTreeMap;

/// Tokens that were used, with what was asked and what was made.
#[derive(Debug, Default)]
pub(crate) struct Tokens(BTreeMap<String, (CreateNetworkInterface, NetworkInterface)>);

impl Tokens {
    /// The earlier result of this request, as it was then.
    pub(crate) fn made_before(
        &self,
        request: &CreateNetworkInterface,
    ) -> Result<Option<&NetworkInterface>, Ec2Error> {
        let Some((before, made)) = request.client_token.as_ref().and_then(|t| self.0.get(t)) else {
            return Ok(None);
        };
        if before == request {
            return Ok(Some(made));
        }
        Err(Ec2Error::new(
            "IdempotentParameterMismatch",
            "Arguments on this idempotent request are inconsistent with arguments used in previous \
             request(s).",
        ))
    }

    /// Remembers what a request has made.
    pub(crate) fn remember(&mut self, request: &CreateNetworkInterface, made: &NetworkInterface) {
        if let Some(token) = &request.client_token {
            self.0.insert(token.clone(), (request.clone(), made.clone()));
        }
    }
}
