//! The extensions. Each has a file, and a row in the [`registry`] with the messages that may carry it.

use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Error, PeerMisbehaved};
use crate::wire::{ExtensionType, Field, Reader, Writer};

pub(crate) mod alpn;
#[cfg(feature = "association-ports")]
pub(crate) mod association_port;
pub(crate) mod cached_info;
pub(crate) mod certificate_authorities;
pub(crate) mod certificate_type;
pub(crate) mod compress_certificate;
pub(crate) mod connection_id;
pub(crate) mod cookie;
pub(crate) mod credential_status;
pub(crate) mod did_methods;
pub(crate) mod did_proof;
pub(crate) mod early_data;
pub(crate) mod ec_point_formats;
pub(crate) mod extended_master_secret;
pub(crate) mod handshake_cache;
pub(crate) mod key_share;
pub(crate) mod max_fragment_length;
pub(crate) mod pre_shared_key;
pub(crate) mod psk_key_exchange_modes;
pub(crate) mod record_size_limit;
pub(crate) mod registry;
pub(crate) mod renegotiation_info;
pub(crate) mod rrc;
pub(crate) mod server_name;
pub(crate) mod session_ticket;
pub(crate) mod signature_algorithms;
pub(crate) mod ssi_parameters;
pub(crate) mod status_request;
pub(crate) mod supported_groups;
pub(crate) mod supported_versions;
pub(crate) mod tls_cert_with_extern_psk;

pub(crate) use registry::{Rules, rules};

/// A message with extensions. HelloRetryRequest and the ServerHellos of TLS 1.2 and 1.3 share a number, but
/// each has its own extensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    ClientHello,
    ServerHello,
    Tls12ServerHello,
    HelloRetryRequest,
    EncryptedExtensions,
    CertificateRequest,
    SsiRequest,
    Certificate,
    NewSessionTicket,
}

/// The most extensions in one message. IANA lists some 60, and GREASE (RFC 8701) adds 16. It limits the work,
/// because the reader compares each extension with every other. OpenSSL and BoringSSL set no limit.
const MAX_EXTENSIONS: usize = 256;

/// The body of an extension in one or several messages.
pub(crate) trait Extension: Sized {
    /// Its number.
    const TYPE: ExtensionType;
    /// The messages that may carry this body.
    const IN: &'static [Context];

    fn read(r: &mut Reader<'_>) -> Result<Self, Error>;
    fn write(&self, w: &mut Writer);
}

/// The extensions of a received message and the positions of their bodies. The reader has checked that the
/// message may carry each of them, that none appears twice, and that every known one is well-formed.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtensionTable(Vec<(ExtensionType, Range<usize>)>);

impl ExtensionTable {
    /// Reads the content of `Extension extensions<0..2^16-1>`, without its length.
    pub(crate) fn read(extensions: &[u8], rules: &Rules) -> Result<Self, Error> {
        let mut list: Vec<(ExtensionType, Range<usize>)> = Vec::new();
        let mut r = Reader::new(extensions, Field::ExtensionList);
        while !r.is_empty() {
            let typ = ExtensionType(r.u16()?);
            let body = r.vec16(0)?;
            // RFC 8446 §4.2: "There MUST NOT be more than one extension of the same type".
            if list.iter().any(|(t, _)| *t == typ) {
                return Err(PeerMisbehaved::DuplicateExtension(typ).into());
            }
            r.limit(list.len() + 1, MAX_EXTENSIONS)?;
            registry::check(typ, rules, body)?;
            let end = extensions.len() - r.len();
            list.push((typ, end - body.len()..end));
        }
        Ok(Self(list))
    }

    /// The extensions in `bytes`, from which the table was read.
    pub(crate) fn of<'a>(&'a self, bytes: &'a [u8]) -> Extensions<'a> {
        Extensions { bytes, table: Cow::Borrowed(&self.0) }
    }
}

/// The extensions of a received message, found by its [`ExtensionTable`].
#[derive(Debug, Default)]
pub(crate) struct Extensions<'a> {
    bytes: &'a [u8],
    table: Cow<'a, [(ExtensionType, Range<usize>)]>,
}

impl<'a> Extensions<'a> {
    /// Reads `Extension extensions<0..2^16-1>` of a message.
    pub(crate) fn read(r: &mut Reader<'a>, rules: &Rules) -> Result<Self, Error> {
        Self::parse(r.vec16(0)?, rules)
    }

    pub(crate) fn parse(bytes: &'a [u8], rules: &Rules) -> Result<Self, Error> {
        let ExtensionTable(table) = ExtensionTable::read(bytes, rules)?;
        Ok(Self { bytes, table: Cow::Owned(table) })
    }

    fn body(&self, at: &Range<usize>) -> &'a [u8] {
        self.bytes.get(at.clone()).unwrap_or_default()
    }

    /// Whether `bytes`, which are not checked yet, contain an extension of this type.
    pub(crate) fn contains(bytes: &[u8], typ: ExtensionType) -> bool {
        let mut r = Reader::new(bytes, Field::ExtensionList);
        while let (Ok(t), Ok(_)) = (r.u16(), r.vec16(0)) {
            if t == typ.0 {
                return true;
            }
        }
        false
    }

    /// The body of the extension `T`, if the message has it.
    pub(crate) fn get<T: Extension>(&self) -> Result<Option<T>, Error> {
        const { assert!(registry::has_row(T::TYPE), "no row in the registry") };
        match self.table.iter().find(|(t, _)| *t == T::TYPE) {
            Some((_, at)) => Reader::all(self.body(at), Field::Extension(T::TYPE), |r| T::read(r)).map(Some),
            None => Ok(None),
        }
    }

    /// The body of the extension `T`, which the message must have.
    pub(crate) fn require<T: Extension>(&self) -> Result<T, Error> {
        self.get()?.ok_or_else(|| PeerMisbehaved::MissingExtension(T::TYPE).into())
    }

    pub(crate) fn has(&self, typ: ExtensionType) -> bool {
        self.table.iter().any(|(t, _)| *t == typ)
    }

    pub(crate) fn last(&self) -> Option<ExtensionType> {
        self.table.last().map(|(t, _)| *t)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (ExtensionType, &'a [u8])> {
        self.table.iter().map(|(typ, at)| (*typ, self.body(at)))
    }

    pub(crate) fn types(&self) -> impl Iterator<Item = ExtensionType> {
        self.table.iter().map(|(t, _)| *t)
    }

    /// Returns an error if an extension was not offered (RFC 8446 §4.2).
    pub(crate) fn answer(&self, offered: &[ExtensionType]) -> Result<(), Error> {
        match self.types().find(|t| !offered.contains(t)) {
            Some(typ) => Err(PeerMisbehaved::UnsolicitedExtension(typ).into()),
            None => Ok(()),
        }
    }
}

/// Writes the extensions of a message, and remembers their types.
#[derive(Debug, Default)]
pub(crate) struct ExtensionsWriter {
    body: Writer,
    types: Vec<ExtensionType>,
}

impl ExtensionsWriter {
    pub(crate) fn put<T: Extension>(&mut self, extension: &T) {
        const { assert!(registry::has_row(T::TYPE), "no row in the registry") };
        let at = self.open(T::TYPE);
        extension.write(&mut self.body);
        self.body.close(at, 2);
    }

    /// Begins the body of an extension, whose length has two bytes.
    fn open(&mut self, typ: ExtensionType) -> usize {
        /// Most extensions are shorter.
        const ROOM: usize = 64;
        self.types.push(typ);
        self.body.reserve(ROOM);
        self.body.u16(typ.0);
        self.body.open(2)
    }

    pub(crate) fn put_some<T: Extension>(&mut self, extension: Option<&T>) {
        if let Some(extension) = extension {
            self.put(extension);
        }
    }

    /// Records that the message offers an extension in another way, such as by a signalling cipher suite.
    pub(crate) fn offer(&mut self, typ: ExtensionType) {
        self.types.push(typ);
    }

    #[cfg(feature = "fuzzing")]
    pub(crate) fn put_raw(&mut self, typ: ExtensionType, body: &[u8]) {
        self.types.push(typ);
        self.body.u16(typ.0);
        self.body.vec16(|w| w.put(body));
    }

    /// The types of the extensions.
    pub(crate) fn into_types(self) -> Vec<ExtensionType> {
        self.types
    }

    /// Writes `Extension extensions<0..2^16-1>`.
    pub(crate) fn write(&self, w: &mut Writer) {
        w.vec16(|w| w.append(&self.body));
    }
}
