//! The plain server behind all the others. The first byte of a connection says what it does.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// How many connections may wait to be accepted: more than one part of the experiment opens at once.
const BACKLOG: u32 = 4096;

/// The size of its buffers, in bytes.
const BUFFER: usize = 64 << 10;

/// It returns everything, including this byte.
pub(super) const ECHO: u8 = b'e';
/// It sends without end.
pub(super) const SOURCE: u8 = b'd';
/// It takes everything.
pub(super) const SINK: u8 = b'u';

/// The bytes that the sinks have received.
pub(super) type Sunk = Arc<AtomicU64>;

/// Binds a port and serves it. The kernel keeps up to `room` bytes of a connection that takes them slowly,
/// otherwise what it likes.
pub(super) async fn start(sunk: Sunk, room: Option<u32>) -> io::Result<SocketAddr> {
    let socket = TcpSocket::new_v4()?;
    // The accepted sockets inherit it.
    room.map_or(Ok(()), |room| socket.set_send_buffer_size(room))?;
    socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
    let listener = socket.listen(BACKLOG)?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let sunk = sunk.clone();
            // The client notices a failure.
            tokio::spawn(async move { drop(serve(tcp, &sunk).await) });
        }
    });
    Ok(address)
}

async fn serve(mut tcp: TcpStream, sunk: &AtomicU64) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    let mut first = [0; 512];
    let len = tcp.read(&mut first).await?;
    let received = first.get(..len).unwrap_or_default();
    match received.first() {
        Some(&SOURCE) => {
            let data = vec![b'x'; BUFFER];
            loop {
                tcp.write_all(&data).await?;
                // An echo must not wait until the kernel takes no more of this.
                tokio::task::yield_now().await;
            }
        }
        Some(&SINK) => {
            let mut data = vec![0; BUFFER];
            loop {
                match tcp.read(&mut data).await? {
                    0 => return Ok(()),
                    len => sunk.fetch_add(len as u64, Ordering::Relaxed),
                };
            }
        }
        _ => {
            tcp.write_all(received).await?;
            loop {
                match tcp.read(&mut first).await? {
                    0 => return Ok(()),
                    len => tcp.write_all(first.get(..len).unwrap_or_default()).await?,
                }
            }
        }
    }
}
