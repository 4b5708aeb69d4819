//! The runtime's cached ADD results in the form that amazon-vpc-cni's DEL reads.

use crate::Assignment;
use config_model::{PodName, TableId, VethName};
use serde_json::{Value, json};

/// Returns the name of the cache file.
pub(crate) fn file_name(held: &Assignment) -> String {
    format!("{}-{}-{}", held.key.network, held.key.container_id, held.key.ifname)
}

/// Converts a cached result to amazon-vpc-cni's form; `None` if it has that form.
///
/// Its DEL reads each interface's route table from the MAC of the pod's end. It reads the number of interfaces from a last
/// interface that does not exist. Without these it removes no rule if its agent does not answer.
pub(crate) fn vpc_cni(
    kept: &[u8],
    held: &Assignment,
    prefix: &str,
) -> Result<Option<Vec<u8>>, String> {
    let mut kept: Value =
        serde_json::from_slice(kept).map_err(|error| format!("it is not JSON: {error}"))?;
    if kept["kind"] != "cniCacheV1" {
        return Err(format!("its kind is {} and not \"cniCacheV1\"", kept["kind"]));
    }
    let interfaces = kept["result"]["interfaces"].as_array().cloned().unwrap_or_default();
    let dummy = |link: &Value| link["name"].as_str().is_some_and(|name| name.starts_with("dummy"));
    if interfaces.last().is_some_and(dummy) {
        return Ok(None);
    }
    let pod = held.pod.clone().or_else(|| named(&kept));
    let pod = pod.ok_or("neither it nor the daemon's checkpoint tells the pod's name")?;
    kept["result"] = result(held, &pod, prefix, kept["netns"].as_str().unwrap_or_default());
    serde_json::to_vec(&kept).map(Some).map_err(|error| error.to_string())
}

fn result(held: &Assignment, pod: &PodName, prefix: &str, netns: &str) -> Value {
    let (mut interfaces, mut ips) = (Vec::new(), Vec::new());
    for (number, (address, card, device)) in (0..=u8::MAX).zip(&held.addresses) {
        let host = VethName::of(prefix, pod, number);
        let table = TableId::of_eni(*card, *device).0.to_string();
        let inside = held.key.interface(number).ifname;
        interfaces.push(json!({ "name": host.as_str() }));
        interfaces.push(json!({ "name": inside, "mac": table, "sandbox": netns }));
        let (bits, family) = if address.is_ipv4() { (32, "4") } else { (128, "6") };
        ips.push(json!({
            "version": family,
            "interface": interfaces.len() - 1,
            "address": format!("{address}/{bits}"),
        }));
    }
    let device = held.addresses.first().map_or(0, |(_, _, device)| device.0);
    let dummy = VethName::of("dummy", pod, 0);
    interfaces.push(json!({ "name": dummy.as_str(), "mac": "0", "sandbox": device.to_string() }));
    json!({ "cniVersion": "0.4.0", "interfaces": interfaces, "ips": ips, "dns": {} })
}

/// Returns the pod's name from the cached CNI arguments.
fn named(kept: &Value) -> Option<PodName> {
    let argument = |wanted: &str| {
        let arguments = kept["cniArgs"].as_array()?;
        let found = arguments.iter().find(|pair| pair[0] == wanted)?;
        found[1].as_str().map(str::to_owned)
    };
    let (namespace, name) = (argument("K8S_POD_NAMESPACE")?, argument("K8S_POD_NAME")?);
    Some(PodName { namespace, name })
}

/// Returns the addresses of a cached result in either form.
#[cfg(test)]
pub(crate) fn addresses(kept: &[u8]) -> Vec<std::net::IpAddr> {
    let kept: Value = serde_json::from_slice(kept).unwrap_or_default();
    let ips = kept["result"]["ips"].as_array().cloned().unwrap_or_default();
    let text = ips.iter().filter_map(|ip| ip["address"].as_str()?.split('/').next());
    text.filter_map(|text| text.parse().ok()).collect()
}
