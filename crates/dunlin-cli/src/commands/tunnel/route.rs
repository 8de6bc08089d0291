//! The listener of a tunnel by options: they become the text of a configuration, so that both have one
//! reader. An option has the words of its key, so faults name it.

use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin_command::error::Error;

use crate::tls::credentials::CredentialOptions;

const HEADING: &str = "Without a configuration";

/// A listener by options.
#[derive(ClapArgs, Clone)]
pub(super) struct Route {
    /// The address on this machine to which programs connect. It must be a loopback address, as in
    /// 127.0.0.1:1883.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "to", help_heading = HEADING)]
    listen: Option<String>,
    /// The server.
    #[arg(long, visible_alias = "connect", value_name = "HOST:PORT", requires = "listen", help_heading = HEADING)]
    to: Option<String>,
    /// Receive datagrams over UDP, and use DTLS.
    #[arg(long, requires = "listen", help_heading = HEADING)]
    udp: bool,
    /// The certificates of the authorities that the server may have, in PEM.
    #[arg(long, visible_alias = "CAfile", value_name = "FILE", requires = "listen", help_heading = HEADING)]
    ca: Option<PathBuf>,
    /// Trust the raw public keys in this file.
    #[arg(long, alias = "rpk-file", value_name = "FILE", requires = "listen", help_heading = HEADING)]
    raw_keys: Option<PathBuf>,
    /// The name in the server's certificate, instead of the host.
    #[arg(long, visible_alias = "servername", value_name = "NAME", requires = "listen", help_heading = HEADING)]
    server_name: Option<String>,
    /// This device's certificate chain in PEM, leaf first.
    #[arg(long, visible_alias = "cert", value_name = "FILE", requires = "listen", help_heading = HEADING)]
    chain: Option<PathBuf>,
    /// Its private key, unless that is in the file of --chain.
    #[arg(long, value_name = "FILE", requires = "chain", help_heading = HEADING)]
    key: Option<PathBuf>,
    /// Authenticate both sides by the pre-shared key in this file, which `dunlin psk` makes.
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = HEADING)]
    psk_file: Option<PathBuf>,
    /// The identity of the key, if the file has several.
    #[arg(long, value_name = "IDENTITY", requires = "psk_file", help_heading = HEADING)]
    psk_identity: Option<String>,
    #[command(flatten)]
    identity: CredentialOptions,
    /// The registry of did:dunlin, where the proofs of the own DID and the documents of servers come from.
    #[arg(long, value_name = "URL", requires = "registry_key", help_heading = HEADING)]
    registry: Option<String>,
    /// The keys of the registry and its witnesses (registry.pub), or the genesis file of a replicated one.
    #[arg(long, value_name = "FILE", requires = "registry", help_heading = HEADING)]
    registry_key: Option<PathBuf>,
    /// The authorities of the registry's HTTPS server [default: those of this machine].
    #[arg(long, alias = "https-CAfile", value_name = "FILE", requires = "registry", help_heading = HEADING)]
    registry_ca: Option<PathBuf>,
    /// Keep the handshake cache in this directory, which is created if it is missing: later handshakes are
    /// then shorter, also after a restart. The server needs a cache, too.
    #[arg(long, value_name = "DIRECTORY", requires = "listen", help_heading = HEADING)]
    cache: Option<PathBuf>,
    /// Send over this interface: a device, an address, or `default`. Repeat the option for several, the best
    /// first, at most four.
    #[arg(long, alias = "interface", value_name = "NAME|ADDRESS", requires = "udp", help_heading = HEADING)]
    interfaces: Vec<String>,
}

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
        // With a slash, its name is not taken for a kind of store.
        let store = self.cache.as_ref().map(|cache| Path::new(".").join(cache).join("servers"));
        let mut text = Text("[[listener]]\nname = \"tunnel\"\n".to_owned());
        text.add("listen", &self.listen);
        text.add("to", &self.to);
        text.add("server_name", &self.server_name);
        text.add("transport", self.udp.then_some("dtls"));
        text.add("interfaces", &self.interfaces);
        text.files("server.ca", &self.ca)?;
        text.files("server.raw_keys", &self.raw_keys)?;
        for (key, files) in self.identity.keys() {
            text.files(key, files.iter().map(|file| &file.value))?;
        }
        text.add("server.registry.url", &self.registry);
        text.files("server.registry.key", &self.registry_key)?;
        text.files("server.registry.ca", &self.registry_ca)?;
        text.files("psk.file", &self.psk_file)?;
        text.add("psk.identity", &self.psk_identity);
        text.add("cache.mode", store.as_ref().map(|_| "compact"));
        text.files("cache.store", &store)?;
        let mut certificate = Text("[[listener.certificate]]\n".to_owned());
        certificate.files("chain", &self.chain)?;
        certificate.files("key", &self.key)?;
        if self.chain.is_some() {
            text.0.push_str(&certificate.0);
        }
        Ok(text.0)
    }
}

/// A table of the configuration.
struct Text(String);

impl Text {
    /// Sets a key to a value, or to an array of several. The escapes of TOML are those of JSON.
    fn add<'a, T: AsRef<str> + ?Sized + 'a>(&mut self, key: &str, values: impl IntoIterator<Item = &'a T>) {
        let values = values.into_iter().map(|value| serde_json::Value::from(value.as_ref()).to_string());
        let values: Vec<_> = values.collect();
        match values.as_slice() {
            [] => {}
            [value] => self.0.push_str(&format!("{key} = {value}\n")),
            values => self.0.push_str(&format!("{key} = [{}]\n", values.join(", "))),
        }
    }

    fn files<'a>(&mut self, key: &str, paths: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Error> {
        let name = |path: &'a PathBuf| {
            let not_utf8 = || Error::usage(path.display(), "a name that is not UTF-8", "rename it");
            path.to_str().ok_or_else(not_utf8)
        };
        let names = paths.into_iter().map(name).collect::<Result<Vec<_>, _>>()?;
        self.add(key, names);
        Ok(())
    }
}
