//! A credential that is issued again, because its holder has another DID.

use std::path::{Path, PathBuf};

use dunlin::crypto::CryptoProvider;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_identity::Did;
use dunlin_identity::credential::status::StatusEntry;
use dunlin_identity::credential::{Form, Verifier};
use dunlin_identity::encoding::json::Value;
use dunlin_setup::did::{OwnDid, credential, now_s};

use super::issue::sign;
use super::status::{List, lists_of};
use super::time_text;
use crate::did;

/// A valid credential about the old DID, and its issuer.
pub(crate) struct Reissue {
    credential: Value,
    statuses: Vec<StatusEntry>,
    form: Form,
    issuer: OwnDid,
    list: Option<PathBuf>,
    out: PathBuf,
}

impl Reissue {
    /// Reads the credential and verifies it: a forged or revoked one is not issued again.
    pub(crate) fn read(
        path: &Path,
        issuer: OwnDid,
        holder: &Did,
        list: Option<&Path>,
        provider: &CryptoProvider,
    ) -> Result<Self, Error> {
        let bytes = credential(&did::file(path))?;
        let lists = lists_of(list, &issuer, provider)?;
        let refused = |error| {
            Error::failed(
                path.display(),
                error,
                "give a valid credential about the old DID by the present key of --issuer; --status-list if it has a status",
            )
        };
        // A credential that only an earlier key has signed may come from a thief.
        let verifier = Verifier::new([issuer.document.clone()]);
        let verified =
            verifier.verify_with_status(provider, &bytes, holder, &lists, now_s()).map_err(refused)?;
        let form = Form::of(&bytes).map_err(refused)?;
        let list = list.map(Path::to_owned);
        let out = PathBuf::new();
        let credential = verified.credential;
        let statuses = verified.statuses;
        Ok(Self { credential, statuses, form, issuer, list, out })
    }

    /// Names the file of the new credential.
    pub(crate) fn to(self, out: &Path) -> Self {
        Self { out: out.to_owned(), ..self }
    }

    /// Issues the credential about the new DID, and revokes the old one if it has a status.
    pub(crate) fn write(mut self, holder: &Did, provider: &CryptoProvider) -> Result<(), Error> {
        // The registered claims of a JWT say the same about the old DID.
        const OLD: [&str; 7] = ["id", "iss", "sub", "jti", "nbf", "iat", "exp"];
        if let Some(members) = self.credential.as_object_mut() {
            members.retain(|name, _| !OLD.contains(&name.as_str()));
        }
        self.credential["credentialSubject"]["id"] = holder.as_str().into();
        self.credential["validFrom"] = time_text(now_s()).into();
        let _lock = self.list.as_deref().map(files::lock_directory_of).transpose()?;
        let mut list = match &self.list {
            Some(path) if !self.statuses.is_empty() => Some(List::read(path, &self.issuer, provider)?),
            _ => None,
        };
        if let Some(list) = &list {
            self.credential["credentialStatus"] = list.entry(list.take(provider)?).to_value();
        }
        let bytes = sign(&self.credential, &self.issuer, self.form, &self.out, provider)?;
        files::write(&self.out, &bytes, Access::Public, Existing::Keep)?;
        if let Some(list) = &mut list {
            let url = list.entry(0).list;
            for old in self.statuses.iter().filter(|old| old.list == url) {
                list.set(old.index)?;
            }
            list.write_default(&self.issuer, provider)?;
        }
        Ok(())
    }
}
