//! Unattached ENIs.

use super::{create::TAG_CREATED_AT, eni::tags_of, failure::incomplete};
use aws_sdk_ec2::types::NetworkInterface;
use aws_smithy_types::{DateTime, date_time::Format};
use config_model::{EniId, Span, SubnetId};
use ipamd_core::{CloudFault, Leftover};
use std::time::SystemTime;

/// Reads the properties that decide whether the ENI is leaked.
pub(super) fn leftover(
    action: &'static str,
    eni: &NetworkInterface,
    now: SystemTime,
) -> Result<Leftover, CloudFault> {
    let missing = |what| move || incomplete(action, what);
    let id = eni.network_interface_id().ok_or_else(missing("networkInterfaceId"))?;
    let subnet = eni.subnet_id().ok_or_else(missing("subnetId"))?;
    let tags = tags_of(eni.tag_set());
    let created = tags.get(TAG_CREATED_AT).map(|text| time(text));
    let attached = eni
        .attachment()
        .and_then(|attachment| attachment.status())
        .is_some_and(|status| status.as_str() != "detached");
    let available = eni.status().is_some_and(|status| status.as_str() == "available");
    Ok(Leftover {
        eni: EniId::new(id),
        subnet: SubnetId::new(subnet),
        description: eni.description().unwrap_or_default().to_owned(),
        age: created.flatten().map(|when| age(when, now)),
        created_unreadable: created == Some(None),
        available: available && !attached,
        tags,
    })
}

fn time(text: &str) -> Option<SystemTime> {
    let read = DateTime::from_str(text, Format::DateTimeWithOffset).ok()?;
    SystemTime::try_from(read).ok()
}

/// A creation time in the future of our clock gives age zero.
fn age(when: SystemTime, now: SystemTime) -> Span {
    let age = now.duration_since(when).unwrap_or_default().as_millis();
    Span(u64::try_from(age).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aws_sdk_ec2::types::{NetworkInterfaceStatus, Tag};
    use std::time::{Duration, UNIX_EPOCH};

    fn found(created: Option<&str>) -> Leftover {
        let mut eni = NetworkInterface::builder()
            .network_interface_id("eni-1")
            .subnet_id("subnet-1")
            .status(NetworkInterfaceStatus::Available);
        if let Some(created) = created {
            eni = eni.tag_set(Tag::builder().key(TAG_CREATED_AT).value(created).build());
        }
        let now = UNIX_EPOCH + Duration::from_secs(1_755_700_600);
        leftover("DescribeNetworkInterfaces", &eni.build(), now).expect("a whole ENI")
    }

    #[test]
    fn the_age_is_the_time_in_the_tag() {
        for text in ["2025-08-20T14:26:40Z", "2025-08-20T16:26:40+02:00"] {
            let found = found(Some(text));
            assert_eq!((found.age, found.created_unreadable), (Some(Span::seconds(600)), false));
            assert!(found.available);
        }
        assert_eq!(found(Some("2999-01-01T00:00:00Z")).age, Some(Span(0)), "a clock is wrong");
    }

    #[test]
    fn an_invalid_time_differs_from_a_missing_tag() {
        for text in ["", "yesterday", "2025-08-20", "1755700000"] {
            let found = found(Some(text));
            assert_eq!((found.age, found.created_unreadable), (None, true), "{text:?}");
        }
        let untagged = found(None);
        assert_eq!((untagged.age, untagged.created_unreadable), (None, false));
    }
}
