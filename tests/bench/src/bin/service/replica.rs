//! A replica of the controller that sends a cluster's Services to one node.

use crate::{api::NODE_NAME, cluster::Cluster};
use anyhow::{Context as _, Result};
use control_hub::{Capabilities, Hub};
use control_rpc::{SharedHub, Trust};
use control_wire::{KINDS, NodeSnapshot, entry, proto};
use policy_objects::Kind;
use serde_json::Value;
use service_objects::{Service, Slice};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
};
use tests_bench::authority::{Authority, NAME};
use tokio::runtime::Runtime;

/// The replica. It stops when it is dropped, which no runtime may do.
pub(crate) struct Replica {
    pub(crate) at: SocketAddr,
    pub(crate) trust: Trust,
    hub: Arc<SharedHub>,
    _server: Runtime,
}

impl Replica {
    /// Serves at the loopback link of the calling thread's network namespace. `policies` are sent as they are.
    pub(crate) fn start(cluster: &Cluster, policies: Vec<proto::Change>) -> Result<Self> {
        let mut hub = Hub::new([2; 16], 0)
            .with_capabilities(Capabilities { kinds: KINDS.into(), ..Capabilities::default() });
        let mut snapshot = NodeSnapshot::default();
        let part = proto::Part { generation: 1, changes: policies, last: true };
        snapshot.receive(part).context("read the policies of the node")?;
        for (id, object) in snapshot.objects() {
            hub.put_object(&id, entry(&object), [NODE_NAME.to_owned()].into());
        }
        for service in cluster.services() {
            hub.set_service(&Service::read(&service).context("read a Service")?);
        }
        for slice in cluster.slices() {
            hub.set_slice(&Slice::read(&slice).context("read a slice")?);
        }
        for kind in Kind::ALL {
            hub.reach(kind.text(), 1);
        }
        hub.loaded();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("bind a port")?;
        let at = listener.local_addr().context("read the port")?;
        let authority = Authority::new()?;
        let pem = std::fs::read(authority.file.path()).context("read the certificate")?;
        let trust = Trust::new(&pem, NAME)?;
        let hub = SharedHub::new(hub);
        let server = authority.serve(listener, &hub)?;
        Ok(Self { at, trust, hub, _server: server })
    }

    /// Sends a slice to the node.
    pub(crate) fn put_slice(&self, slice: &Value) -> Result<()> {
        let slice = Slice::read(slice).context("read a slice")?;
        self.hub.with(|hub| hub.set_slice(&slice));
        Ok(())
    }
}
