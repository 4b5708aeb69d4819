//! Running pods of a policed node: in the API with their addresses, in a network namespace, with servers.

use super::sandbox::{Answer, Sandbox, Started};
use crate::{
    proxy::{NetworkNamespace, SERVED},
    world::{PATIENCE, World},
};
use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use std::{
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
};
use tests_lab::{Lab, wait_for};

/// A running pod of the namespace `default`.
pub(crate) struct Running<'a> {
    pub(crate) name: String,
    pub(crate) node: &'a str,
    pub(crate) address: IpAddr,
    pub(crate) netns: NetworkNamespace,
    /// The path of the network namespace on the node.
    pub(crate) path: String,
    /// The result of the ADD.
    pub(crate) result: Value,
    pub(crate) uid: String,
}

/// Creates a pod with the label `app` in the API, bound to the node.
pub(crate) fn create(world: &World, node: &str, name: &str, app: &str) -> Result<Started> {
    let pod: Pod = serde_json::from_value(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {
            "nodeName": node, "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "none.invalid/none"}],
        },
    }))?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let made = world.runtime.block_on(pods.create(&PostParams::default(), &pod))?;
    Ok(Started { name: name.to_owned(), uid: made.uid().context("a pod without UID")? })
}

/// Starts a pod as the kubelet does: the ADD until it succeeds, and then the pod's status.
pub(crate) fn start<'a>(
    world: &World,
    lab: &'a Lab,
    node: &'a str,
    name: &str,
    app: &str,
) -> Result<Running<'a>> {
    let pod = create(world, node, name, app)?;
    let sandbox = Sandbox::new(lab, node, &pod)?;
    let mut result = Value::Null;
    wait_for(&format!("the pod {name}"), PATIENCE, || match sandbox.add()? {
        Answer::Starts(added) => {
            result = added;
            Ok(true)
        }
        Answer::Fails(code, message) => anyhow::bail!("the ADD fails with code {code}: {message}"),
    })?;
    let path = sandbox.netns();
    let netns = enter(lab, node, &path)?;
    let address = address_of(&result)?;
    runs(world, name, address)?;
    let Started { name, uid } = pod.clone();
    Ok(Running { name, node, address, netns, path, result, uid })
}

/// Opens a network namespace of the node by its name there.
pub(crate) fn enter(lab: &Lab, node: &str, name: &str) -> Result<NetworkNamespace> {
    let sleep = ["node", "exec", node, "--", "ip", "netns", "exec", name, "sleep", "60"];
    NetworkNamespace::of(lab.command(&sleep))
}

/// Returns the pod's address from the result of its ADD.
pub(crate) fn address_of(result: &Value) -> Result<IpAddr> {
    let text = result["ips"][0]["address"].as_str().context("a result without an address")?;
    Ok(text.split('/').next().unwrap_or_default().parse()?)
}

/// Sets the pod's status to running, as its kubelet does.
pub(crate) fn runs(world: &World, name: &str, address: IpAddr) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), "default");
    let status = json!({"status": {
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
    }});
    let patch = Patch::Merge(&status);
    world.runtime.block_on(pods.patch_status(name, &PatchParams::default(), &patch))?;
    Ok(())
}

impl Running<'_> {
    /// Starts servers that answer with the pod's name, over TCP and UDP. They run until the test exits.
    pub(crate) fn serve(&self) -> Result<()> {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, SERVED));
        let bind = || Ok((TcpListener::bind(at)?, UdpSocket::bind(at)?));
        let (listener, socket) = self.netns.within(bind)?;
        let name = self.name.clone();
        std::thread::spawn(move || {
            while let Ok((mut client, _)) = listener.accept() {
                // A client that ended does not need the answer.
                let _ = client.write_all(name.as_bytes());
            }
        });
        let name = self.name.clone();
        std::thread::spawn(move || {
            while let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                let _ = socket.send_to(name.as_bytes(), from);
            }
        });
        Ok(())
    }
}
