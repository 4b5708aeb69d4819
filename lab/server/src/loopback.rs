//! EC2 and IMDS on loopback: for tests of whatever speaks to them, without any privilege.

use crate::{ec2, http, imds, live::LiveCloud};
use config_model::InstanceId;
use std::{io, net::Ipv4Addr, net::SocketAddr};
use tokio::{net::TcpListener, task::JoinHandle};

/// Two servers on loopback; they end when this is dropped.
#[derive(Debug)]
pub struct Loopback {
    /// Address of the EC2 endpoint.
    pub ec2: SocketAddr,
    /// Address of the metadata service.
    pub imds: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Loopback {
    /// Value for `AWS_ENDPOINT_URL_EC2`.
    pub fn ec2_endpoint(&self) -> String {
        format!("http://{}", self.ec2)
    }

    /// Value for `AWS_EC2_METADATA_SERVICE_ENDPOINT`.
    pub fn imds_endpoint(&self) -> String {
        format!("http://{}", self.imds)
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
    }
}

/// Serves a cloud on two free ports of 127.0.0.1; every caller of IMDS is treated as `instance`.
///
/// # Errors
/// If no port can be bound.
pub async fn serve_loopback(cloud: LiveCloud, instance: InstanceId) -> io::Result<Loopback> {
    let (ec2, imds) = (free_port().await?, free_port().await?);
    let addresses = (ec2.local_addr()?, imds.local_addr()?);
    let endpoint = ec2::Endpoint::new(cloud.clone());
    let metadata = imds::Metadata::new(cloud, imds::Callers::Fixed(instance));
    let tasks = [
        tokio::spawn(async move {
            http::serve(ec2, endpoint).await;
        }),
        tokio::spawn(async move {
            http::serve(imds, metadata).await;
        }),
    ];
    Ok(Loopback { ec2: addresses.0, imds: addresses.1, tasks })
}

async fn free_port() -> io::Result<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await
}
