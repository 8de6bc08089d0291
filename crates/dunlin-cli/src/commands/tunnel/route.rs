//! The listener of a tunnel by options: they become the text of a configuration, so that both have one
//! reader.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::faults::told_at;
use dunlin_gateway::{Fault, Faults};

const HEADING: &str = "Without a configuration";

/// A listener by options.
#[derive(ClapArgs, Clone)]
pub(super) struct Route {
    /// The address on this machine to which programs connect. It must be a loopback address, as in
    /// 127.0.0.1:1883.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "connect", help_heading = HEADING)]
    listen: Option<String>,
    /// The server.
    #[arg(long, value_name = "HOST:PORT", requires = "listen", help_heading = HEADING)]
    connect: Option<String>,
    /// Receive datagrams over UDP, and use DTLS.
    #[arg(long, requires = "listen", help_heading = HEADING)]
    udp: bool,
    /// The certificates of the authorities that the server may have, in PEM.
    #[arg(long, visible_alias = "CAfile", value_name = "FILE", requires = "listen", help_heading = HEADING)]
    ca: Option<PathBuf>,
    /// Trust the raw public keys in this file.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    rpk_file: Option<PathBuf>,
    /// The name in the server's certificate, instead of the host.
    #[arg(long, value_name = "NAME", requires = "listen", help_heading = HEADING)]
    servername: Option<String>,
    /// This device's certificate chain in PEM, leaf first.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    cert: Option<PathBuf>,
    /// Its private key, unless that is in the file of --cert.
    #[arg(long, value_name = "FILE", requires = "cert", help_heading = HEADING)]
    key: Option<PathBuf>,
    /// Authenticate both sides by the pre-shared key in this file, which `dunlin psk` makes.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    psk_file: Option<PathBuf>,
    /// The identity of the key, if the file has several.
    #[arg(long, value_name = "IDENTITY", requires = "psk_file", help_heading = HEADING)]
    psk_identity: Option<String>,
    /// This device's DID: its directory, as `dunlin did create` makes it, or its private key. Without --vc,
    /// the device proves the DID alone.
    #[arg(long, value_name = "DIR|KEY", requires = "listen", help_heading = HEADING)]
    did: Option<PathBuf>,
    /// A verifiable credential about the DID of --did, to show in place of a certificate.
    #[arg(long, value_name = "FILE", requires = "did", help_heading = HEADING)]
    vc: Option<PathBuf>,
    /// The newest status list of the credential's issuer, to send along. May be repeated.
    #[arg(long, value_name = "FILE", requires = "vc", help_heading = HEADING)]
    staple_status: Vec<PathBuf>,
    /// The proofs that the own did:dunlin is on a list of members (`dunlin did members`).
    #[arg(long, value_name = "FILE", requires_all = ["did", "registry"], help_heading = HEADING)]
    membership: Option<PathBuf>,
    /// Accept a verifiable credential of the server, by the issuers on this list. It needs --peers.
    #[arg(long, value_name = "FILE", requires = "peers", help_heading = HEADING)]
    trust: Option<PathBuf>,
    /// The DIDs that the server may have: with --trust as the holder of a credential, without it by its key
    /// alone.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    peers: Option<PathBuf>,
    /// The document of a did:dunlin in --trust or --peers, or of the DID of --did. May be repeated.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    document: Vec<PathBuf>,
    /// The status list of an issuer in --trust. May be repeated.
    #[arg(long, value_name = "FILE", requires = "trust", help_heading = HEADING)]
    status_list: Vec<PathBuf>,
    /// The registry of did:dunlin, where the proofs of the own DID and the documents of servers come from.
    #[arg(long, value_name = "URL", requires = "registry_key", help_heading = HEADING)]
    registry: Option<String>,
    /// The keys of the registry and its witnesses (registry.pub), or the genesis file of a replicated one.
    #[arg(long, value_name = "FILE", requires = "registry", help_heading = HEADING)]
    registry_key: Option<PathBuf>,
    /// The authorities of the registry's HTTPS server [default: those of this machine].
    #[arg(long = "https-CAfile", value_name = "FILE", requires = "registry", help_heading = HEADING)]
    https_ca_file: Option<PathBuf>,
    /// Keep the handshake cache in this directory, which is created if it is missing: later handshakes are
    /// then shorter, also after a restart. The server needs a cache, too.
    #[arg(long, value_name = "DIRECTORY", requires = "listen", help_heading = HEADING)]
    cache: Option<PathBuf>,
    /// Send over this interface: a device, an address, or `default`. Repeat the option for several, the best
    /// first, at most four.
    #[arg(long, value_name = "NAME|ADDRESS", requires = "udp", help_heading = HEADING)]
    interface: Vec<String>,
}

/// The options that name files or texts, by the keys that they set.
const OPTIONS: [(&str, &str); 22] = [
    ("listen", "--listen"),
    ("to", "--connect"),
    ("server_name", "--servername"),
    ("server.ca", "--ca"),
    ("server.raw_keys", "--rpk-file"),
    ("certificate[0].chain", "--cert"),
    ("certificate[0].key", "--key"),
    ("psk.file", "--psk-file"),
    ("psk.identity", "--psk-identity"),
    ("cache.store", "--cache"),
    ("interfaces", "--interface"),
    ("did", "--did"),
    ("vc", "--vc"),
    ("staple_status", "--staple-status"),
    ("membership", "--membership"),
    ("server.vc_issuers", "--trust"),
    ("server.vc_peers", "--peers"),
    ("server.dids", "--peers"),
    ("server.did_documents", "--document"),
    ("server.vc_status", "--status-list"),
    ("server.registry.key", "--registry-key"),
    ("server.registry.ca", "--https-CAfile"),
];

impl Route {
    /// The directory of the handshake cache.
    pub(super) fn cache(&self) -> Option<&Path> {
        self.cache.as_deref()
    }

    /// The options as the text of a configuration. The names of files are relative to the working directory.
    ///
    /// # Errors
    /// The name of a file is not UTF-8.
    pub(super) fn text(&self) -> Result<String, Error> {
        let alone = self.peers.as_ref().filter(|_| self.trust.is_none());
        let of_holders = self.peers.as_ref().filter(|_| self.trust.is_some());
        // With a slash, its name is not taken for a kind of store.
        let store = self.cache.as_ref().map(|cache| Path::new(".").join(cache).join("servers"));
        let mut listener = Table::new("[[listener]]");
        listener.text("name", Some("tunnel"));
        listener.text("listen", self.listen.as_deref());
        listener.text("to", self.connect.as_deref());
        listener.text("server_name", self.servername.as_deref());
        listener.text("transport", self.udp.then_some("dtls"));
        listener.texts("interfaces", &self.interface);
        listener.file("did", self.did.as_ref())?;
        listener.file("vc", self.vc.as_ref())?;
        listener.files("staple_status", &self.staple_status)?;
        listener.file("membership", self.membership.as_ref())?;
        let mut certificate = Table::new("[[listener.certificate]]");
        certificate.file("chain", self.cert.as_ref())?;
        certificate.file("key", self.key.as_ref())?;
        let mut server = Table::new("[listener.server]");
        server.file("ca", self.ca.as_ref())?;
        server.file("raw_keys", self.rpk_file.as_ref())?;
        server.file("vc_issuers", self.trust.as_ref())?;
        server.file("vc_peers", of_holders)?;
        server.file("dids", alone)?;
        server.files("did_documents", &self.document)?;
        server.files("vc_status", &self.status_list)?;
        let mut registry = Table::new("[listener.server.registry]");
        registry.text("url", self.registry.as_deref());
        registry.file("key", self.registry_key.as_ref())?;
        registry.file("ca", self.https_ca_file.as_ref())?;
        let mut psk = Table::new("[listener.psk]");
        psk.file("file", self.psk_file.as_ref())?;
        psk.text("identity", self.psk_identity.as_deref());
        let mut cache = Table::new("[listener.cache]");
        cache.file("store", store.as_ref())?;
        cache.text("mode", store.as_ref().map(|_| "compact"));
        let tables = [listener, certificate, server, registry, psk, cache].into_iter();
        Ok(tables.filter(|table| !table.is_empty).map(|table| table.text).collect())
    }
}

/// A table of the configuration.
struct Table {
    text: String,
    is_empty: bool,
}

impl Table {
    fn new(name: &str) -> Self {
        Self { text: format!("{name}\n"), is_empty: true }
    }

    fn add(&mut self, key: &str, value: &str) {
        self.text.push_str(&format!("{key} = {value}\n"));
        self.is_empty = false;
    }

    fn text(&mut self, key: &str, value: Option<&str>) {
        if let Some(value) = value {
            self.add(key, &quoted(value));
        }
    }

    fn texts(&mut self, key: &str, values: &[impl AsRef<str>]) {
        if !values.is_empty() {
            let values: Vec<_> = values.iter().map(|value| quoted(value.as_ref())).collect();
            self.add(key, &format!("[{}]", values.join(", ")));
        }
    }

    fn file(&mut self, key: &str, path: Option<&PathBuf>) -> Result<(), Error> {
        self.text(key, path.map(|path| name(path)).transpose()?);
        Ok(())
    }

    fn files(&mut self, key: &str, paths: &[PathBuf]) -> Result<(), Error> {
        let names = paths.iter().map(|path| name(path)).collect::<Result<Vec<_>, _>>()?;
        self.texts(key, &names);
        Ok(())
    }
}

/// The name of a file, as a text of TOML can have it.
fn name(path: &Path) -> Result<&str, Error> {
    path.to_str().ok_or_else(|| Error::usage(path.display(), "a name that is not UTF-8", "rename it"))
}

/// A text of TOML, which has the escapes of JSON.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Prints all faults of options but the last, and returns the last.
pub(super) fn told(faults: &Faults) -> Error {
    told_at(faults, |fault: &Fault| {
        let key = fault.place.as_ref().map(|place| place.key.trim_start_matches("listener[0]."));
        let key = key.unwrap_or_default();
        // A fault in a list has the number of its entry.
        let names =
            |name: &str| key == name || key.strip_prefix(name).is_some_and(|rest| rest.starts_with('['));
        let option = OPTIONS.iter().find(|(name, _)| names(name)).map(|(_, option)| *option);
        let is_registry = key.starts_with("server.registry");
        option.unwrap_or(if is_registry { "--registry" } else { "options" }).to_owned()
    })
}
