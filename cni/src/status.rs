//! STATUS: would an ADD succeed, and are the pods that run well?

use crate::{
    attachment::Served,
    fault::{Code, Fault},
    session::{Daemon, Session, remedy},
};
use config_model::causes;
use std::time::{Duration, Instant};

/// Timeout for a missing socket: a restarted daemon serves it soon.
const PATIENCE: Duration = Duration::from_secs(1);
/// The daemon's deadline.
const DEADLINE: Duration = Duration::from_secs(5);

pub(crate) fn status(daemon: &Daemon) -> Result<Served, Fault> {
    let answer = Session::status(daemon, PATIENCE, Instant::now() + DEADLINE);
    let status = answer.map_err(|error| {
        let message = format!("no pod can be served: {}", causes(&error));
        Fault::new(Code::Unavailable, message, remedy(&error))
    })?;
    let look =
        "look at /v1/ferrule/explain of ferrule-ipamd's introspection, or at its log, on this node";
    let unavailable = status.unavailable.join("; ");
    let impaired = status.impaired.join("; ");
    match (unavailable.is_empty(), impaired.is_empty()) {
        (true, true) => Ok(Served::default()),
        // An ADD would succeed. An error would make the node not ready for all pods because of a few. The daemon
        // reports those pods by log, metric and event.
        (true, false) => {
            Ok(Served { fields: vec![("impaired", impaired.into())], ..Served::default() })
        }
        (false, true) => {
            let message = format!("no pod can be served: {unavailable}");
            Err(Fault::new(Code::Unavailable, message, look))
        }
        (false, false) => {
            let message = format!(
                "no pod can be served: {unavailable}; pods that run are impaired: {impaired}"
            );
            Err(Fault::new(Code::Impaired, message, look))
        }
    }
}
