//! Associations that survive a restart: a sealed file, and the store of IDs that lets it be thawed once
//! (docs/frozen-associations.md).

use std::fmt;
use std::sync::Arc;

use dunlin::crypto::CryptoProvider;
use dunlin::error::Internal;
use dunlin_store::frozen::{FrozenError, FrozenFile, FrozenIds, FrozenWriter};

use crate::config::{Fault, FrozenConfig};

/// Why an association was not thawed.
pub(crate) struct NotThawed {
    why: String,
    /// Whether this says nothing about the association: a key file cannot be read, for example.
    pub(crate) is_fault: bool,
}

impl fmt::Display for NotThawed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl From<dunlin::Error> for NotThawed {
    fn from(error: dunlin::Error) -> Self {
        Self {
            why: error.to_string(),
            is_fault: matches!(error, dunlin::Error::Internal(Internal::QuestionFailed)),
        }
    }
}

impl From<&str> for NotThawed {
    fn from(why: &str) -> Self {
        Self { why: why.to_owned(), is_fault: false }
    }
}

/// A file of frozen associations, and the store of its ID.
pub(crate) struct FrozenPlace {
    file: FrozenFile,
    ids: Box<dyn FrozenIds>,
}

impl FrozenPlace {
    /// Opens the key and the store of IDs. Both must work: without them the process could not freeze its
    /// associations when it ends.
    pub(crate) fn open(config: &FrozenConfig, provider: &Arc<CryptoProvider>) -> Result<Self, Fault> {
        let path = &config.file.value;
        let place = &config.file.place;
        let told = |error: FrozenError| place.fault(error.to_string(), error.advice());
        // The text of the store may contain a password, so only its error is shown.
        let ids = config.ids.value.frozen_ids().map_err(|fault| {
            config.ids.place.fault(
                fault.to_string(),
                "name a directory, sqlite:FILE or redis://HOST:PORT/DB that can be used",
            )
        })?;
        let file = FrozenFile::open(provider, path, &config.key_file()).map_err(told)?;
        file.try_store(&*ids).map_err(told)?;
        Ok(Self { file, ids })
    }

    /// Makes something of each association of the file, as [`FrozenFile::thaw`] does. Logs what fails. If the
    /// file cannot be thawed, the process starts without it. It stays if another start could thaw it.
    pub(crate) fn thaw<T>(&self, each: impl FnMut(&[u8]) -> Result<T, NotThawed>) -> Vec<T> {
        let results = match self.file.thaw_unless(&*self.ids, each, |error| error.is_fault) {
            Ok(results) => results.unwrap_or_default(),
            Err(error) => {
                tracing::error!(%error, advice = error.advice(), "no association was thawed");
                // The next file takes its place.
                if error.is_final()
                    && let Err(error) = self.file.set_aside()
                {
                    tracing::error!(%error, advice = error.advice(), "the file of frozen associations stays");
                }
                return vec![];
            }
        };
        let mut thawed = Vec::with_capacity(results.len());
        let mut failed = vec![];
        for result in results {
            match result {
                Ok(one) => thawed.push(one),
                Err(error) => failed.push(error),
            }
        }
        if let Some(first) = failed.first() {
            tracing::warn!(associations = failed.len(), %first, "some associations were not thawed");
        }
        thawed
    }

    /// Begins a file.
    pub(crate) fn create(&self) -> Result<FrozenWriter<'_>, FrozenError> {
        self.file.create(&*self.ids)
    }
}
