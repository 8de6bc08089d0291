//! CometBFT's socket for applications (ABCI): requests and answers, each after its length. CometBFT opens
//! several connections, for consensus, for operations that wait, for queries and for snapshots, and expects
//! the answers of each in order.

use std::convert::Infallible;
use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use dunlin_identity::encoding::protobuf::varint;
use dunlin_tokio::places::ACCEPT_PAUSE;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use super::Replica;

/// The longest request, in bytes: more than the longest block ([`MAX_BLOCK`](super::MAX_BLOCK)) and
/// CometBFT's additions.
pub const MAX_MESSAGE: usize = 8 * 1024 * 1024;

/// Opens the socket, and answers CometBFT's requests.
pub(super) async fn serve(replica: &Arc<Replica>, path: &Path) -> io::Result<Infallible> {
    // One that an earlier process has left; the database's lock keeps out a second process.
    if path.symlink_metadata().is_ok_and(|file| file.file_type().is_socket()) {
        std::fs::remove_file(path)?;
    }
    let socket = UnixListener::bind(path)?;
    std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = socket.accept() => {
                let Ok((stream, _)) = accepted else {
                    sleep(ACCEPT_PAUSE).await;
                    continue;
                };
                if connections.is_empty() {
                    tracing::info!("the CometBFT node has come");
                }
                let replica = Arc::clone(replica);
                connections.spawn(async move {
                    if let Err(error) = connection(&replica, stream).await {
                        tracing::debug!(%error, "a connection of CometBFT has ended");
                    }
                });
            }
            Some(_) = connections.join_next() => {
                if connections.is_empty() {
                    tracing::warn!("the CometBFT node has left the replica: start it again");
                }
            }
        }
    }
}

async fn connection(replica: &Arc<Replica>, stream: UnixStream) -> io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut input = BufReader::new(input);
    while let Some(request) = read(&mut input).await? {
        let replica = Arc::clone(replica);
        // The database may write.
        let answer = spawn_blocking(move || replica.answer(&request)).await.map_err(io::Error::other)?;
        output.write_all(&answer).await?;
    }
    Ok(())
}

/// Reads a message after its length; `None` at the end.
async fn read(input: &mut BufReader<tokio::net::unix::OwnedReadHalf>) -> io::Result<Option<Vec<u8>>> {
    let mut length = Vec::new();
    let length = loop {
        match input.read_u8().await {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof && length.is_empty() => {
                return Ok(None);
            }
            byte => length.push(byte?),
        }
        if length.last().is_some_and(|byte| byte & 0x80 == 0) {
            break varint(&length).map_err(io::Error::other)?.0;
        }
    };
    let length = usize::try_from(length).ok().filter(|length| *length <= MAX_MESSAGE);
    let mut message = vec![0; length.ok_or_else(|| io::Error::other("the request is too long"))?];
    input.read_exact(&mut message).await?;
    Ok(Some(message))
}
