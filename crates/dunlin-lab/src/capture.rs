//! The packets that pass a device.

use std::fs::Permissions;
use std::io::{self, BufWriter, IoSliceMut, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::errno::Errno;
use nix::libc::PACKET_OUTGOING;
use nix::net::if_::if_nametoindex;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg,
    setsockopt, socket, sockopt,
};
use nix::sys::time::TimeSpec;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};

use crate::Error;
use crate::net::Namespace;
use dunlin_command::caller::give_file;

/// The largest frame: an IP packet of 64 KiB, an Ethernet header, and reserve.
const MAX_FRAME: usize = 1 << 17;

/// The size of the kernel's queue in bytes, including its bookkeeping.
const KERNEL_BUFFER: usize = 64 << 20;

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The time since 1970.
    pub time: Duration,
    /// The direction.
    pub direction: Direction,
    /// The whole frame from the Ethernet header on, without preamble and checksum.
    pub bytes: Vec<u8>,
}

/// The direction of a frame at the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The namespace of the device sent it.
    Sent,
    /// The namespace of the device received it.
    Received,
}

/// Captures the frames of a device. The kernel queues a copy of each frame, so no frame is missed between two
/// looks, and the last look includes every frame sent before it.
#[derive(Debug)]
pub struct Capture {
    socket: OwnedFd,
    device: usize,
    frames: Vec<Frame>,
    buffer: Vec<u8>,
    control: Vec<u8>,
}

impl Capture {
    /// Starts a capture at the Ethernet `device` of a namespace, whose loopback device must be up.
    ///
    /// # Errors
    /// The devices or CAP_NET_RAW are missing.
    pub fn start(namespace: &Namespace, device: &str) -> Result<Self, Error> {
        let what = format!("capture at {device} in network namespace {}", namespace.name());
        let opened = namespace.run(|| {
            let index = if_nametoindex(device)?;
            let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
            let socket = socket(AddressFamily::Packet, SockType::Raw, flags, SockProtocol::EthAll)?;
            setsockopt(&socket, sockopt::RcvBufForce, &KERNEL_BUFFER)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            setsockopt(&socket, sockopt::RxqOvfl, &1)?;
            Ok((socket, index as usize))
        })?;
        let (socket, device) = opened.map_err(|errno| Error::refused(what, errno))?;
        namespace.run(wait_for_time_stamps)?.map_err(|error| broken(&error.to_string()))?;
        let control = nix::cmsg_space!(TimeSpec, u32);
        Ok(Self { socket, device, frames: Vec::new(), buffer: vec![0; MAX_FRAME], control })
    }

    /// Returns the frames so far.
    ///
    /// # Errors
    /// Frames were lost because too many passed between two looks.
    pub fn look(&mut self) -> Result<&[Frame], Error> {
        while self.receive()? {}
        Ok(&self.frames)
    }

    /// Waits until `done` accepts the frames, at most for `timeout`. Returns whether it did.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn wait(&mut self, timeout: Duration, done: impl Fn(&[Frame]) -> bool) -> Result<bool, Error> {
        let end = Instant::now() + timeout;
        while !done(self.look()?) {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let mut polled = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            match ppoll(&mut polled, Some(TimeSpec::from(left)), None) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(broken(errno.desc())),
            }
        }
        Ok(true)
    }

    /// Ends the capture and returns all frames.
    ///
    /// # Errors
    /// As [`look`](Self::look).
    pub fn finish(mut self) -> Result<Vec<Frame>, Error> {
        self.look()?;
        Ok(self.frames)
    }

    /// Takes a frame from the kernel's queue. Returns whether there was one.
    fn receive(&mut self) -> Result<bool, Error> {
        let mut into = [IoSliceMut::new(&mut self.buffer)];
        let fd = self.socket.as_raw_fd();
        let message = match recvmsg::<LinkAddr>(fd, &mut into, Some(&mut self.control), MsgFlags::empty()) {
            Ok(message) => message,
            Err(Errno::EAGAIN) => return Ok(false),
            // The device went down and may come back.
            Err(Errno::EINTR | Errno::ENETDOWN) => return Ok(true),
            Err(errno) => return Err(broken(errno.desc())),
        };
        let mut time = Duration::ZERO;
        for control in message.cmsgs().map_err(|errno| broken(errno.desc()))? {
            match control {
                ControlMessageOwned::ScmTimestampns(at) => time = at.into(),
                ControlMessageOwned::RxqOvfl(1..) => {
                    return Err(broken("more frames passed than there was room for"));
                }
                _ => {}
            }
        }
        let len = message.bytes;
        let address = message.address;
        // The socket receives the frames of all devices; those of loopback are ignored.
        if let Some(address) = address.filter(|address| address.ifindex() == self.device) {
            let direction = match address.pkttype() {
                PACKET_OUTGOING => Direction::Sent,
                _ => Direction::Received,
            };
            let bytes = self.buffer.get(..len).unwrap_or_default().to_vec();
            self.frames.push(Frame { time, direction, bytes });
        }
        Ok(true)
    }
}

/// Waits until the kernel stamps packets as they pass. It starts some time after the request; earlier packets
/// get the time at which they are read.
fn wait_for_time_stamps() -> io::Result<()> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
    socket.connect(socket.local_addr()?)?;
    socket.set_read_timeout(Some(Duration::from_secs(1)))?;
    let mut control = nix::cmsg_space!(TimeSpec);
    loop {
        socket.send(&[0])?;
        let before_reading = since_1970();
        let mut byte = [0];
        let mut into = [IoSliceMut::new(&mut byte)];
        let message = recvmsg::<()>(socket.as_raw_fd(), &mut into, Some(&mut control), MsgFlags::empty())?;
        let stamped = message.cmsgs()?.any(|control| {
            matches!(control, ControlMessageOwned::ScmTimestampns(at) if Duration::from(at) < before_reading)
        });
        if stamped {
            return Ok(());
        }
    }
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn broken(why: &str) -> Error {
    Error::new("capture", why, "look more often, or send less")
}

/// Writes frames as a pcap file with times in nanoseconds, for Wireshark and `dunlin explain`.
///
/// # Errors
/// The frames cannot be written.
pub fn write_pcap(frames: &[Frame], out: impl Write) -> Result<(), Error> {
    let failed = |error: pcap_file::PcapError| Error::new("pcap file", error, "check where it goes");
    let header = PcapHeader {
        snaplen: MAX_FRAME as u32,
        datalink: DataLink::ETHERNET,
        endianness: Endianness::native(),
        ts_resolution: TsResolution::NanoSecond,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(out, header).map_err(failed)?;
    for Frame { time, bytes, .. } in frames {
        writer.write_packet(&PcapPacket::new(*time, bytes.len() as u32, bytes)).map_err(failed)?;
    }
    Ok(())
}

/// Writes frames to a pcap file at `path`, which replaces an older file and belongs to the user who called
/// sudo.
///
/// # Errors
/// The file cannot be written.
pub fn save_pcap(frames: &[Frame], path: &Path) -> Result<(), Error> {
    let failed =
        |error| Error::new(path.display(), error, "name a directory that is there and can be written");
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut file = tempfile::Builder::new()
        .prefix(".dunlin-")
        .permissions(Permissions::from_mode(0o644))
        .tempfile_in(directory.unwrap_or(Path::new(".")))
        .map_err(failed)?;
    let mut out = BufWriter::new(&mut file);
    write_pcap(frames, &mut out)?;
    out.flush().map_err(failed)?;
    drop(out);
    give_file(file.as_file()).map_err(failed)?;
    file.persist(path).map(drop).map_err(|error| failed(error.error))
}
