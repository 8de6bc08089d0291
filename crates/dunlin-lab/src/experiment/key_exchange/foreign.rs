//! OpenSSL as the other stack, with the same keys.

use std::ffi::OsString;
use std::io::Read;

use super::super::foreign::{Foreign, Library, MemoryFile};
use super::suites::{AllKeys, Case, Crypto};
use crate::Error;
use crate::net::{Ground, Pair};

const LIBRARY: Library = Library {
    name: "openssl",
    source: &[include_str!("openssl.c")],
    link: &["-lssl", "-lcrypto"],
    package: "libssl-dev",
};

/// An empty argument of the program.
const NOTHING: &str = "-";

/// The program for OpenSSL.
pub(super) struct OpenSsl(Foreign);

/// A certificate and its key in files.
struct Files([MemoryFile; 2]);

impl Files {
    fn arguments(files: Option<&Self>) -> Vec<OsString> {
        match files {
            Some(Self(files)) => files.iter().map(|file| file.path().into()).collect(),
            None => [NOTHING, NOTHING].map(OsString::from).into(),
        }
    }
}

/// The files of a case.
struct Prepared {
    words: Vec<OsString>,
    root: Option<MemoryFile>,
    server: Option<Files>,
    client: Option<Files>,
}

impl Prepared {
    fn new(case: &Case, keys: &AllKeys, crypto: &Crypto) -> Result<Self, Error> {
        let keys = case.keys(keys);
        let words = [
            case.protocol().trim_start_matches("tls").to_owned(),
            case.openssl.unwrap_or(NOTHING).to_owned(),
            group(case, crypto),
            // Without certificates the program still needs the name of a signature scheme.
            case.certificates.map_or("RSA+SHA256", |certificates| certificates.openssl_scheme).to_owned(),
            if case.has_psk { "psk" } else { case.authentication() }.to_owned(),
        ];
        let file = |content: &[u8]| MemoryFile::new(content);
        let files = |end: &super::suites::End| {
            Ok::<_, Error>(Files([file(&end.certificate)?, file(end.key.secret_der())?]))
        };
        Ok(Self {
            words: words.map(OsString::from).into(),
            root: keys.map(|keys| file(&keys.root)).transpose()?,
            server: keys.map(|keys| files(&keys.server)).transpose()?,
            client: keys.map(|keys| files(&keys.client)).transpose()?,
        })
    }

    fn arguments(&self, role: &str, own: Option<&Files>) -> Vec<OsString> {
        let root = self.root.as_ref().map_or_else(|| NOTHING.into(), |file| file.path().into());
        [vec![role.into()], self.words.clone(), vec![root], Files::arguments(own)].concat()
    }
}

/// OpenSSL's name of the group; a finite field that TLS 1.2 spells out has only its prime.
fn group(case: &Case, crypto: &Crypto) -> String {
    let field = case.group.and_then(|name| crypto.provider.group(name)?.finite_field());
    match (case.group, field) {
        (None, _) => NOTHING.to_owned(),
        (Some(_), Some(field)) if case.protocol() == "tls1.2" => {
            field.prime.iter().map(|byte| format!("{byte:02x}")).collect()
        }
        (Some(name), _) => name.to_string(),
    }
}

impl OpenSsl {
    /// Compiles it.
    ///
    /// # Errors
    /// The compiler or the library is missing.
    pub(super) fn new() -> Result<Self, Error> {
        LIBRARY.compile().map(Self)
    }

    /// Makes one connection.
    pub(super) fn connect(
        &self,
        ground: &Ground,
        pair: &Pair,
        case: &Case,
        (keys, crypto): (&AllKeys, &Crypto),
    ) -> Result<(), Error> {
        let Self(program) = self;
        let prepared = Prepared::new(case, keys, crypto)?;
        let arguments = prepared.arguments("server", prepared.server.as_ref());
        let (server, port) = program.serve(ground, &pair.server, arguments)?;
        let mut arguments = prepared.arguments("client", prepared.client.as_ref());
        arguments.extend([Pair::SERVER.to_string(), port].map(OsString::from));
        let client = ground.spawn(&pair.client, &mut program.command(arguments))?;
        program.finished(client)?;
        program.finished(server)?;
        Ok(())
    }

    /// Returns the microseconds of client and server for `times` handshakes in memory.
    pub(super) fn times(
        &self,
        case: &Case,
        (keys, crypto): (&AllKeys, &Crypto),
        times: usize,
    ) -> Result<Vec<[f64; 2]>, Error> {
        let Self(program) = self;
        let prepared = Prepared::new(case, keys, crypto)?;
        let mut arguments = prepared.arguments("memory", prepared.server.as_ref());
        arguments.push(times.to_string().into());
        arguments.extend(Files::arguments(prepared.client.as_ref()));
        let mut child = program.command(arguments).spawn().map_err(|error| program.failed(error))?;
        let mut printed = String::new();
        let read = child.stdout.take().map_or(Ok(0), |mut out| out.read_to_string(&mut printed));
        let output = child.wait_with_output().map_err(|error| program.failed(error))?;
        let told = String::from_utf8_lossy(&output.stderr);
        if let Some(line) = told.lines().next() {
            return Err(program.failed(line));
        }
        read.map_err(|error| program.failed(error))?;
        let both = |line: &str| {
            let (client, server) = line.split_once(' ')?;
            Some([client.parse().ok()?, server.parse().ok()?])
        };
        let all: Vec<_> = printed.lines().filter_map(both).collect();
        match all.len() == times {
            true => Ok(all),
            false => Err(program.failed("it prints something else")),
        }
    }
}
