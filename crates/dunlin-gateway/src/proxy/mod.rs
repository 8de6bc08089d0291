//! Passes the data of clients to backends: a module for each protocol between them.

pub(crate) mod flow;
pub(crate) mod http;
pub(crate) mod mqtt;
pub(crate) mod tcp;
pub(crate) mod udp;

use std::io;
use std::time::Duration;

use dunlin_tokio::addresses;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::sockets;

/// Connects to the backend `to`, at the first of its addresses that answers. The error comes with its class
/// for the metrics.
pub(crate) async fn connect(to: &str, within: Duration) -> Result<TcpStream, (&'static str, io::Error)> {
    let connecting = async {
        let (host, port) = addresses::split(to)?;
        addresses::connect(&addresses::look_up(host, port).await?).await
    };
    match timeout(within, connecting).await {
        Ok(Ok(backend)) => {
            sockets::prepare(&backend);
            Ok(backend)
        }
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => Err(("refused", error)),
        Ok(Err(error)) => Err(("failed", error)),
        Err(_) => Err(("timeout", io::Error::new(io::ErrorKind::TimedOut, "no answer within connect_time"))),
    }
}
