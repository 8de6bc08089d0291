//! Changes of this machine's addresses and routes, from the kernel.

use std::io;

/// The kernel's notices about interfaces, addresses and routes, from a netlink socket. On systems without
/// netlink there are none.
///
/// tokio has no type for netlink. `UnixDatagram` only polls and receives, so it also works with a netlink
/// descriptor.
#[cfg(target_os = "linux")]
pub(super) struct AddressWatch(tokio::net::UnixDatagram);

#[cfg(target_os = "linux")]
impl AddressWatch {
    /// The groups RTMGRP_LINK, RTMGRP_IPV4_IFADDR and RTMGRP_IPV6_IFADDR of rtnetlink(7). DHCP adds the
    /// address first and the route later, so also RTMGRP_IPV4_ROUTE and RTMGRP_IPV6_ROUTE; and for rules
    /// between routing tables RTMGRP_IPV4_RULE and RTNLGRP_IPV6_RULE.
    const GROUPS: u32 = 0x1 | 0x10 | 0x100 | 0x40 | 0x400 | 0x80 | 0x4_0000;

    /// Opens the socket.
    ///
    /// # Errors
    /// The system has no netlink, or no room for another socket.
    pub(super) fn new() -> io::Result<Self> {
        use rustix::net::netlink::SocketAddrNetlink;
        use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, socket_with};
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        // The protocol NETLINK_ROUTE is number 0, which `None` stands for.
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, None)?;
        bind(&socket, &SocketAddrNetlink::new(0, Self::GROUPS))?;
        Ok(Self(tokio::net::UnixDatagram::from_std(socket.into())?))
    }

    /// Waits until something has changed. [`super::interfaces`] then asks the system for the present state:
    /// notices can be lost.
    pub(super) async fn changed(&self) {
        let mut has_changed = false;
        let mut notice = [0; 8192];
        while !has_changed {
            if self.0.readable().await.is_err() {
                return std::future::pending().await;
            }
            loop {
                match self.0.try_recv(&mut notice) {
                    Ok(_) => has_changed = true,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                    // There were too many notices for the socket's buffer.
                    Err(_) => {
                        has_changed = true;
                        break;
                    }
                }
            }
        }
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) struct AddressWatch;

#[cfg(not(target_os = "linux"))]
impl AddressWatch {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) async fn changed(&self) {
        std::future::pending().await
    }
}
