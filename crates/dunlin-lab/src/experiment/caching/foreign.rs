//! The foreign peers of this experiment.

use std::ffi::OsString;

use dunlin_pki::{Identity, certificates_to_pem};
use pki_types::CertificateDer;

use super::super::foreign::{Foreign, Library, MemoryFile};
use super::{Case, Handshake, Mode, Stack};
use crate::Error;
use crate::net::{Ground, Pair};

/// The libraries that are compared.
pub(super) const LIBRARIES: [Library; 2] = [
    Library {
        name: "openssl",
        source: &[include_str!("arguments.c"), include_str!("openssl.c")],
        link: &["-lssl", "-lcrypto"],
        package: "libssl-dev",
    },
    Library {
        name: "wolfssl",
        source: &[include_str!("arguments.c"), include_str!("wolfssl.c")],
        link: &["-lwolfssl"],
        package: "libwolfssl-dev",
    },
];

/// What one side presents, and what it trusts, in files.
struct Keys([MemoryFile; 3]);

impl Keys {
    fn new(case: &Case<'_>, identity: &Identity) -> Result<Self, Error> {
        let failed = |error| Error::new("keys of the lab", error, "report this as a bug");
        let pem = |chain: &[CertificateDer<'_>]| certificates_to_pem(chain).map_err(failed);
        let (root, chain) = (pem(case.tree.root.chain())?, pem(&identity.chain)?);
        let key = identity.key.to_pem().map_err(failed)?;
        let file = |content: &str| MemoryFile::new(content.as_bytes());
        Ok(Self([file(&root)?, file(&chain)?, file(&key)?]))
    }

    /// The arguments of a program.
    fn arguments(&self, role: &str, mode: Mode) -> Vec<OsString> {
        let words = [role, mode.name()].map(OsString::from);
        words.into_iter().chain(self.0.iter().map(|file| file.path().into())).collect()
    }
}

impl Stack for Foreign {
    fn name(&self) -> &'static str {
        self.name
    }

    /// The cache is ours alone.
    fn has(&self, mode: Mode) -> bool {
        mode != Mode::Compact
    }

    fn connect(&self, ground: &Ground, pair: &Pair, case: &Case<'_>) -> Result<(), Error> {
        let keys = [Keys::new(case, &case.tree.server)?, Keys::new(case, &case.tree.client)?];
        let (server, port) = self.serve(ground, &pair.server, keys[0].arguments("server", case.mode))?;
        let to = [Pair::SERVER.to_string(), port].map(OsString::from);
        let arguments = [&keys[1].arguments("client", case.mode)[..], &to].concat();
        let client = ground.spawn(&pair.client, &mut self.command(arguments))?;
        let printed = self.finished(client)?;
        self.finished(server)?;
        let expected = case.mode.handshakes().map(|handshake| match handshake {
            Handshake::Resumed => "resumed",
            Handshake::Full | Handshake::Cached => "full",
        });
        let seen: Vec<_> = printed.lines().collect();
        if seen != expected {
            return Err(self.failed(format_args!(
                "{} connections instead of {}",
                seen.join(", "),
                expected.join(", ")
            )));
        }
        Ok(())
    }
}
