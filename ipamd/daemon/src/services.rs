//! Services for ferrule-agent while it follows no replica of the controller: the agent has no access to the API server.

use datapath_rpc::{ServicesSource, ServicesStream, serve_services, wire};
use futures::{StreamExt as _, stream};
use ipamd_kube::{Handle, ServicesKind, ServicesRead};
use runtime_socket::server::{Health, listen};
use std::{future::pending, mem::take, path::PathBuf, sync::Arc, time::Duration};
use tokio::time::sleep;

/// Serves the agent's socket forever. The daemon reads from the API server only while an agent asks.
pub(crate) async fn serve(handle: Handle, socket: PathBuf) {
    let source = Arc::new(Source(handle));
    let health = Health::starting().await;
    loop {
        match listen(&socket).await {
            Ok(incoming) => {
                let served = serve_services(incoming, Arc::clone(&source), &health, pending());
                if let Err(error) = served.await {
                    tracing::error!(
                        error = format!("{error:#}"),
                        "cannot serve Services to ferrule-agent"
                    );
                }
            }
            Err(error) => tracing::warn!(
                socket = %socket.display(),
                error = config_model::causes(&error),
                "cannot listen on the socket for ferrule-agent; trying again"
            ),
        }
        sleep(AGAIN).await;
    }
}

struct Source(Handle);

impl ServicesSource for Source {
    fn read(&self) -> ServicesStream {
        let reads = stream::unfold(self.0.read_services(), |mut reads| async {
            Some((reads.recv().await?, reads))
        });
        Box::pin(reads.flat_map(|read| stream::iter(messages(read))))
    }
}

/// A read in messages of a limited length.
fn messages(read: ServicesRead) -> Vec<wire::ServicesRead> {
    let ServicesRead { kind, is_list, objects, removed, version } = read;
    let kind = match kind {
        ServicesKind::Service => wire::ServicesKind::Service,
        ServicesKind::Slice => wire::ServicesKind::Slice,
    };
    let of = |objects: Vec<Vec<u8>>, more: bool| wire::ServicesRead {
        version: 0,
        kind: kind.into(),
        list: is_list,
        more,
        objects,
        removed: Vec::new(),
        resource_version: 0,
    };
    let (mut messages, mut chunk, mut length) = (Vec::new(), Vec::new(), 0);
    for object in objects {
        if length > 0 && length + object.len() > CHUNK {
            messages.push(of(take(&mut chunk), true));
            length = 0;
        }
        length += object.len();
        chunk.push(object);
    }
    let removed = removed.into_iter();
    let removed =
        removed.map(|of| wire::ObjectName { namespace: of.namespace, name: of.name }).collect();
    messages.push(wire::ServicesRead {
        removed,
        resource_version: version.unwrap_or_default(),
        ..of(chunk, false)
    });
    messages
}

/// The length from which objects are sent in a further message, in bytes.
const CHUNK: usize = 256 << 10;
const AGAIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_list_is_sent_in_parts_and_the_last_ends_it() {
        let read = |objects: Vec<Vec<u8>>| ServicesRead {
            kind: ServicesKind::Slice,
            is_list: true,
            objects,
            removed: Vec::new(),
            version: Some(9),
        };
        let parts = messages(read(vec![vec![0; CHUNK / 2]; 5]));
        let shape: Vec<_> =
            parts.iter().map(|of| (of.objects.len(), of.more, of.resource_version)).collect();
        assert_eq!(shape, [(2, true, 0), (2, true, 0), (1, false, 9)]);
        assert!(parts.iter().all(|of| of.list && of.kind() == wire::ServicesKind::Slice));
        // An object above the limit is a message of its own. An empty list is a message as well.
        assert_eq!(messages(read(vec![vec![0; CHUNK * 2]; 2])).len(), 2);
        assert_eq!(messages(read(Vec::new())).len(), 1);
    }
}
