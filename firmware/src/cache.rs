//! A store of the handshake cache for a device that has one server.

use alloc::vec::Vec;
use core::cell::RefCell;
use core::fmt;

use cortex_m::interrupt::{self, Mutex};
use dunlin::cache::{CacheKey, CachedServer, ClientCache};

/// The entry of one server as encoded bytes, which a real device would keep in its flash. They need the same
/// protection as the device's trust anchors: an attacker who can change them can invent a server, and one who
/// reads the tickets can recognise the device's next connection.
pub struct OneServer(Mutex<RefCell<Vec<u8>>>);

impl OneServer {
    /// A store without an entry.
    pub const fn empty() -> Self {
        Self(Mutex::new(RefCell::new(Vec::new())))
    }

    /// Sets the entry to the bytes that [`OneServer::bytes`] returned earlier. Other bytes are as good as
    /// none.
    pub fn restore(&self, bytes: Vec<u8>) {
        interrupt::free(|cs| *self.0.borrow(cs).borrow_mut() = bytes);
    }

    /// The bytes of the entry.
    pub fn bytes(&self) -> Vec<u8> {
        interrupt::free(|cs| self.0.borrow(cs).borrow().clone())
    }
}

impl ClientCache for &'static OneServer {
    fn update(&self, key: &CacheKey, change: &mut dyn FnMut(&mut CachedServer)) {
        // The entry is bound to the server and the settings by what precedes it. A name contains no zero
        // byte.
        let server = [&key.settings[..], &key.port.to_be_bytes(), key.name.as_bytes(), &[0]].concat();
        interrupt::free(|cs| {
            let mut bytes = self.0.borrow(cs).borrow_mut();
            let known = bytes.strip_prefix(&*server);
            let known = known.and_then(|entry| CachedServer::from_bytes(entry, &key.settings).ok());
            let is_new = known.is_none();
            let mut entry = known.unwrap_or_default();
            change(&mut entry);
            if is_new && entry == CachedServer::default() {
                return;
            }
            // Forget an entry that cannot be encoded.
            *bytes =
                entry.to_bytes(&key.settings).map_or_else(|_| Vec::new(), |entry| [server, entry].concat());
        });
    }
}

impl fmt::Debug for OneServer {
    /// Omits the bytes, as [`CachedServer`] omits the tickets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OneServer")
    }
}
