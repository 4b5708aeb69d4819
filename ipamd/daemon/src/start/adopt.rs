//! Pods that run although the checkpoint does not know them.

use config_model::{PodKey, PodName, Time, registry};
use ipamd_core::{Checkpoint, Notice, RECORD_FORMAT, Record, SeenEni, Severity, Topic};
use routing_plan::{Link, Observed};
use std::net::Ipv4Addr;

/// Adds to the checkpoint every interface whose host end carries its key and has a route to an
/// address of one of the ENIs. Tells which.
pub(super) fn pods_in_kernel(
    mut checkpoint: Checkpoint,
    observed: &Observed,
    enis: &[SeenEni],
    boot_id: &str,
    now: Time,
) -> (Checkpoint, Vec<Notice>) {
    let mut notices = Vec::new();
    for link in observed.links.values().filter(|link| link.group != registry::GROUP_REAP) {
        let Some(key) = link.key() else { continue };
        let Some((address, eni, records)) = holding(&key, link, observed, enis, now) else {
            continue;
        };
        if notices.is_empty() {
            // What the kernel shows is of this boot.
            checkpoint.apply(&Record::Boot { format: RECORD_FORMAT, boot_id: boot_id.to_owned() });
        }
        records.iter().for_each(|record| checkpoint.apply(record));
        notices.push(Notice {
            severity: Severity::Warning,
            topic: Topic::Restored,
            object: key.to_string(),
            cause: format!(
                "it was found in the kernel and not in the checkpoint: {} holds {address} of {}",
                link.name, eni.id
            ),
            next_step: String::new(),
        });
    }
    (checkpoint, notices)
}

fn holding<'a>(
    key: &PodKey,
    link: &Link,
    observed: &Observed,
    enis: &'a [SeenEni],
    now: Time,
) -> Option<(Ipv4Addr, &'a SeenEni, [Record; 2])> {
    let mut routes = observed.routes.iter().filter(|route| route.dev == Some(link.index));
    let address = routes.find_map(routing_plan::Route::host_address)?;
    let eni = enis.iter().find(|eni| eni.addresses.contains(&address))?;
    let place = eni.attachment.as_ref()?;
    let reserved = Record::Reserved {
        key: key.clone(),
        pod: unnamed(&link.name),
        address,
        eni: eni.id.clone(),
        card: place.card,
        device: place.device,
        lapses: now,
    };
    let confirmed = Record::Confirmed { key: key.clone(), host_interface: link.name.clone() };
    Some((address, eni, [reserved, confirmed]))
}

/// A host end's name is a digest of the pod's, which does not tell it. The repair pass finds the
/// link by its key.
fn unnamed(link: &str) -> PodName {
    PodName { namespace: "(unknown)".to_owned(), name: format!("(pod behind {link})") }
}
