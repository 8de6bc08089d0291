//! Associations that survive a restart of the server: the options, and the file with its store.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use dunlin::crypto::CryptoProvider;
use dunlin::error::Internal;
use dunlin::{DtlsConnection, Now, ServerConfig};
use dunlin_command::error::Error;
use dunlin_store::frozen::{FrozenError, FrozenFile, FrozenIds, are_same};
use dunlin_tokio::{DtlsEndpoint, Frozen};

use super::cache::Place;

const HEADING: &str = "Datagrams";

/// The option with the store of IDs.
const STORE: &str = "--frozen-ids";

/// The forms of `--frozen-ids`.
const KINDS: &str = "use DIRECTORY (./DIRECTORY if its name has a colon), sqlite:FILE, redis://HOST:PORT/DB or redis+file:FILE";

/// The options of a server whose associations survive a restart.
#[derive(Args, Clone, Default)]
pub(crate) struct FrozenOptions {
    /// Keep the associations over a restart: the server freezes them into this file, sealed, when Ctrl-C or
    /// SIGTERM ends it, and thaws them when it starts. Clients need not reconnect. After a crash there is no
    /// file, and clients need new handshakes.
    #[arg(long, value_name = "FILE", requires_all = ["udp", "frozen_store"], help_heading = HEADING)]
    frozen: Option<PathBuf>,
    /// Where the server keeps the IDs of files that may still be thawed, so that no file is thawed twice:
    /// DIRECTORY, sqlite:FILE, redis://[USER:PASSWORD@]HOST[:PORT][/DB] or redis+file:FILE (the URL in a
    /// file). All servers that may thaw the file need the same one. Never restore it from a backup.
    // clap must not parse it: its errors would repeat the password.
    #[arg(long = "frozen-ids", alias = "frozen-store", value_name = "PLACE", requires = "frozen", help_heading = HEADING)]
    frozen_store: Option<String>,
    /// The key file that seals the file of --frozen, with 32 random bytes. A missing one is created, unless
    /// the file of --frozen exists. [default: the file's name and ".key"]
    #[arg(long, value_name = "FILE", requires = "frozen", help_heading = HEADING)]
    frozen_key: Option<PathBuf>,
}

/// The file of frozen associations and the store of its ID.
pub(crate) struct FrozenPlace {
    path: PathBuf,
    file: FrozenFile,
    ids: Box<dyn FrozenIds>,
}

/// The result of thawing a file.
pub(crate) enum Thaw {
    /// There is no file.
    NoFile,
    /// The connections of the file, and the errors of the others.
    #[expect(clippy::vec_box, reason = "connections are large, and move only once more")]
    Thawed(Vec<Box<DtlsConnection>>, Vec<dunlin::Error>),
    /// This server believes none of the clients. The file stays.
    NoClient(FrozenError),
}

impl FrozenOptions {
    /// Opens the key and the store, if associations shall survive. Both must work: without them the server
    /// could not freeze its associations when it ends.
    pub(crate) fn open(&self, provider: &Arc<CryptoProvider>) -> Result<Option<FrozenPlace>, Error> {
        let (Some(path), Some(store)) = (&self.frozen, &self.frozen_store) else { return Ok(None) };
        if store.starts_with("rediss:") {
            let advice = "write redis://, and use a network in which nobody else can write to Redis";
            return Err(Error::usage(STORE, "TLS to Redis is not supported", advice));
        }
        let store = Place::parse(STORE, store, KINDS)?;
        let key = self.frozen_key.clone().unwrap_or_else(|| {
            let mut key = path.as_os_str().to_owned();
            key.push(".key");
            key.into()
        });
        let advice = "give each option a path of its own";
        if are_same(path, &key) {
            return Err(Error::usage(
                "--frozen-key",
                format!("{} is the file of --frozen", key.display()),
                advice,
            ));
        }
        if let Some(store) = store.path()
            && (are_same(store, path) || are_same(store, &key))
        {
            let why = format!("{} is the file of --frozen or --frozen-key", store.display());
            return Err(Error::usage(STORE, why, advice));
        }
        let ids = store.store()?.frozen_ids();
        let ids = ids.map_err(|fault| Error::failed(STORE, fault, "give a store that can be used"))?;
        let file = FrozenFile::open(provider, path, &key);
        let file = file.map_err(|error| Error::failed("--frozen-key", &error, error.advice()))?;
        file.try_store(&*ids).map_err(|error| Error::failed(STORE, &error, error.advice()))?;
        Ok(Some(FrozenPlace { path: path.clone(), file, ids }))
    }
}

impl FrozenPlace {
    /// The file.
    pub(crate) fn path(&self) -> String {
        self.path.display().to_string()
    }

    /// Thaws the file.
    pub(crate) fn thaw(&self, config: &Arc<ServerConfig>, now: Now) -> Result<Thaw, FrozenError> {
        let mut is_about_clients = true;
        let thaw = |bytes: &[u8]| {
            let thawed = DtlsConnection::thaw_server(config, bytes, now);
            is_about_clients &= matches!(thawed, Ok(_) | Err(dunlin::Error::Authentication(_)));
            // Boxed, so that they move only once more.
            thawed.map(Box::new)
        };
        // A key file that cannot be read says nothing about a client.
        let is_fault =
            |error: &dunlin::Error| matches!(error, dunlin::Error::Internal(Internal::QuestionFailed));
        let connections = match self.file.thaw_unless(&*self.ids, thaw, is_fault) {
            Ok(Some(connections)) => connections,
            Ok(None) => return Ok(Thaw::NoFile),
            // The clients may have lost their identities, which must not keep the server from starting. Or an
            // option or the clock is wrong.
            Err(error @ FrozenError::NoneThawed { .. }) if is_about_clients => {
                return Ok(Thaw::NoClient(error));
            }
            Err(error) => return Err(error),
        };
        let mut thawed = Vec::with_capacity(connections.len());
        let mut refused = Vec::new();
        for connection in connections {
            match connection {
                Ok(connection) => thawed.push(connection),
                Err(error) => refused.push(error),
            }
        }
        Ok(Thaw::Thawed(thawed, refused))
    }

    /// Renames a file that can no longer be thawed, and returns its new path.
    pub(crate) fn set_aside(&self) -> Result<Option<PathBuf>, FrozenError> {
        self.file.set_aside()
    }

    /// Freezes the associations of an endpoint into the file. Also returns the new path of a file that had
    /// its name. Without any association, such a file stays.
    pub(crate) fn freeze(&self, endpoint: &DtlsEndpoint) -> Result<(Frozen, Option<PathBuf>), FrozenError> {
        let mut writer = self.file.create(&*self.ids)?;
        let mut failed = None;
        let frozen = endpoint.freeze(|bytes| {
            writer.push(bytes).map_err(|error| {
                let text = std::io::Error::other(error.to_string());
                failed = Some(error);
                text
            })
        });
        match (frozen, failed) {
            (_, Some(error)) => Err(error),
            (Ok(frozen), None) if frozen.associations == 0 && self.path.exists() => Ok((frozen, None)),
            (Ok(frozen), None) => writer.finish().map(|written| (frozen, written.aside)),
            (Err(error), None) => Err(FrozenError::File { file: self.path.clone(), why: error.to_string() }),
        }
    }
}
