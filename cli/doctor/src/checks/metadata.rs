//! The instance metadata service.

use super::Check;
use crate::{Finding, Looked, Observation, Severity};

pub(super) fn imds(seen: &Observation) -> Looked<Vec<Finding>> {
    let metadata = match &seen.imds {
        Ok(metadata) => metadata,
        Err(cause) => {
            return Ok(vec![Check::Imds.found(
                Severity::Fault,
                "IMDS",
                format!("the instance metadata service does not answer: {cause}"),
                "the daemon learns its instance, its ENIs and its credentials from it, and cannot \
                 start without it",
                "aws ec2 modify-instance-metadata-options --instance-id ID --http-endpoint enabled, \
                 and let no rule or firewall stand between the node and 169.254.169.254",
            )]);
        }
    };
    match metadata.reaches_pods {
        Some(true) => Ok(Vec::new()),
        Some(false) => Ok(vec![Check::Imds.found(
            Severity::Notice,
            "IMDS",
            "the hop limit of the metadata service is 1",
            "the daemon is on the host's network and needs no more; pods with networks of their own \
             get no answer, which is safer where they have credentials of their own",
            "if pods need it: aws ec2 modify-instance-metadata-options --instance-id ID \
             --http-put-response-hop-limit 2",
        )]),
        None => Err("the hop limit of the metadata service could not be measured".to_owned()),
    }
}
