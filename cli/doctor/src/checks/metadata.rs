//! The instance metadata service.

use super::Check;
use crate::{Finding, Observation, Observed, Severity};

pub(super) fn imds(seen: &Observation) -> Observed<Vec<Finding>> {
    let metadata = match &seen.imds {
        Ok(metadata) => metadata,
        Err(cause) => {
            return Ok(vec![Check::Imds.found(
                Severity::Fault,
                "IMDS",
                format!("the instance metadata service does not answer: {cause}"),
                "the daemon reads its instance, its ENIs and its credentials there, and cannot \
                 start without them",
                "aws ec2 modify-instance-metadata-options --instance-id ID --http-endpoint enabled, \
                 and remove rules and firewalls between the node and 169.254.169.254",
            )]);
        }
    };
    match metadata.reaches_pods {
        Some(true) => Ok(Vec::new()),
        Some(false) => Ok(vec![Check::Imds.found(
            Severity::Notice,
            "IMDS",
            "the hop limit of the metadata service is 1",
            "the daemon is on the host's network and needs no more; pods with their own networks get no \
             answer, which is safer if they have their own credentials",
            "if pods need it: aws ec2 modify-instance-metadata-options --instance-id ID \
             --http-put-response-hop-limit 2",
        )]),
        None => Err("cannot measure the hop limit of the metadata service".to_owned()),
    }
}
