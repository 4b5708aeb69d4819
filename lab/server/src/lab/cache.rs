//! Results that a runtime keeps for DEL and CHECK, where and as libcni keeps them.

use super::{LabError, call::Call, provision::on_machine};
use lab_fabric::Node;
use serde_json::{Value, json};
use std::{fs, io, path::PathBuf};

/// Keeps an ADD's result.
pub(super) fn keep(
    call: &Call<'_>,
    network: &str,
    ifname: &str,
    result: &Value,
) -> Result<(), LabError> {
    let path = path(call.node, network, call.container_id, ifname)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(LabError::file("create", folder))?;
    }
    let uid = call.uid();
    let args: Vec<[&str; 2]> = vec![
        ["IgnoreUnknown", "1"],
        ["K8S_POD_NAMESPACE", call.namespace],
        ["K8S_POD_NAME", call.name],
        ["K8S_POD_INFRA_CONTAINER_ID", call.container_id],
        ["K8S_POD_UID", &uid],
    ];
    let text = json!({
        "kind": KIND,
        "containerId": call.container_id,
        "ifName": ifname,
        "networkName": network,
        "netns": call.netns,
        "cniArgs": args,
        "result": result,
    });
    fs::write(&path, text.to_string()).map_err(LabError::file("write", &path))
}

/// The cached result, in the format of this version; `None` if the ADD used another network name.
pub(super) fn recall(
    node: &Node,
    network: &str,
    version: &str,
    container_id: &str,
    ifname: &str,
) -> Result<Option<Value>, LabError> {
    let path = path(node, network, container_id, ifname)?;
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(LabError::file("read", &path)(err)),
    };
    let kept: Value = serde_json::from_slice(&text)
        .map_err(|err| LabError::BadNetconf { path: path.clone(), why: err.to_string() })?;
    Ok((kept["kind"] == KIND).then(|| in_version(kept["result"].clone(), version)))
}

pub(super) fn forget(
    node: &Node,
    network: &str,
    container_id: &str,
    ifname: &str,
) -> Result<(), LabError> {
    let path = path(node, network, container_id, ifname)?;
    match fs::remove_file(&path) {
        Err(err) if err.kind() != io::ErrorKind::NotFound => {
            Err(LabError::file("delete", &path)(err))
        }
        _gone => Ok(()),
    }
}

/// Converts a result as libcni's types do: before 1.0.0 each address has its family.
fn in_version(mut result: Value, version: &str) -> Value {
    let tells_family = version.starts_with("0.");
    for ip in result["ips"].as_array_mut().into_iter().flatten() {
        let six = ip["address"].as_str().is_some_and(|address| address.contains(':'));
        if let Some(ip) = ip.as_object_mut() {
            ip.remove("version");
            if tells_family {
                ip.insert("version".to_owned(), json!(if six { "6" } else { "4" }));
            }
        }
    }
    result["cniVersion"] = json!(version);
    result
}

fn path(node: &Node, network: &str, container_id: &str, ifname: &str) -> Result<PathBuf, LabError> {
    on_machine(node, &format!("{RESULTS}/{network}-{container_id}-{ifname}"))
}

const RESULTS: &str = "/var/lib/cni/results";
const KIND: &str = "cniCacheV1";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_takes_the_shape_of_the_version_that_is_asked_for() {
        let kept = json!({"cniVersion":"1.0.0","ips":[{"address":"10.0.0.5/32"},
            {"address":"fd00::5/128"}]});
        let old = in_version(kept.clone(), "0.4.0");
        assert_eq!(old["cniVersion"], "0.4.0");
        assert_eq!(
            (&old["ips"][0]["version"], &old["ips"][1]["version"]),
            (&json!("4"), &json!("6"))
        );
        assert_eq!(in_version(old, "1.0.0"), kept);
    }
}
