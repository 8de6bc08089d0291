//! CRLs in files.

use std::collections::HashMap;
use std::path::PathBuf;

use dunlin::Trust;
use dunlin::auth::Revocation;
use pki_types::CertificateRevocationListDer;

use crate::error::{Error, reason};
use crate::files;

/// CRLs that a trust in authorities checks.
pub(crate) struct RevocationLists {
    paths: Vec<PathBuf>,
    /// Not only of the peer's own certificate.
    of_whole_chain: bool,
    /// What came from pipes, which can be read once.
    from_pipes: HashMap<PathBuf, Vec<CertificateRevocationListDer<'static>>>,
}

impl RevocationLists {
    /// Those in these files, which are checked for the peer's certificate or for its whole chain; not read yet.
    pub(super) fn new(paths: Vec<PathBuf>, of_whole_chain: bool) -> Self {
        Self { paths, of_whole_chain, from_pipes: HashMap::new() }
    }

    /// `trust` with the CRLs as they are now.
    pub(super) fn read(&mut self, trust: Trust) -> Result<Trust, Error> {
        let mut lists = vec![];
        for path in &self.paths {
            let is_pipe = path.metadata().is_ok_and(|found| !found.is_file());
            if let Some(kept) = self.from_pipes.get(path).filter(|_| is_pipe) {
                lists.extend_from_slice(kept);
                continue;
            }
            let of_file = files::revocation_lists(path)?;
            // Each file by itself first, so that an error names it.
            let advice = "make it with `dunlin pki crl`";
            Revocation::new(of_file.clone())
                .map_err(|_| Error::failed(path.display(), "damaged, or not a list of version 2", advice))?;
            if is_pipe {
                self.from_pipes.insert(path.clone(), of_file.clone());
            }
            lists.extend(of_file);
        }
        let revocation = Revocation::new(lists).map(Revocation::refuse_overdue);
        let revocation = revocation.map(|r| if self.of_whole_chain { r } else { r.leaf_only() });
        let x509 = trust.x509.map(|x509| x509.with_revocation(revocation?)).transpose();
        let x509 = x509.map_err(|e| Error::usage("--CRL", reason(&e), "report it"))?;
        Ok(Trust { x509, raw_key: trust.raw_key })
    }
}
