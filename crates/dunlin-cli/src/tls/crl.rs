//! The CRLs that a client or server checks.

use std::collections::HashMap;
use std::path::PathBuf;

use dunlin::Trust;
use dunlin_command::error::{Error, misuse};
use dunlin_setup::place::FileField;
use dunlin_setup::trust::{lists, together};
use pki_types::CertificateRevocationListDer;

/// The CRLs that a client or server checks.
pub(crate) struct RevocationLists {
    files: Vec<FileField>,
    /// Whether to check the whole chain instead of only the peer's certificate.
    of_whole_chain: bool,
    /// CRLs from pipes, which can be read only once.
    from_pipes: HashMap<PathBuf, Vec<CertificateRevocationListDer<'static>>>,
}

impl RevocationLists {
    /// The CRLs in these files, which are not read yet. They apply to the peer's certificate or to its whole
    /// chain.
    pub(super) fn new(files: Vec<FileField>, of_whole_chain: bool) -> Self {
        Self { files, of_whole_chain, from_pipes: HashMap::new() }
    }

    /// Returns `trust` with the present CRLs.
    pub(super) fn read(&mut self, trust: Trust) -> Result<Trust, Error> {
        let mut all = vec![];
        for file in &self.files {
            let path = &file.value;
            let is_pipe = path.metadata().is_ok_and(|found| !found.is_file());
            if let Some(kept) = self.from_pipes.get(path).filter(|_| is_pipe) {
                all.extend_from_slice(kept);
                continue;
            }
            let of_file = lists(file)?;
            if is_pipe {
                self.from_pipes.insert(path.clone(), of_file.clone());
            }
            all.extend(of_file);
        }
        let Some(revocation) = together(&self.files, all)? else { return Ok(trust) };
        let revocation = if self.of_whole_chain { revocation } else { revocation.leaf_only() };
        let x509 = trust.x509.map(|x509| x509.with_revocation(revocation)).transpose();
        Ok(Trust { x509: x509.map_err(|e| misuse(&e))?, raw_key: trust.raw_key })
    }
}
