//! CRLs in files.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use dunlin::Trust;
use dunlin::auth::Revocation;
use dunlin_command::error::{Error, reason};
use dunlin_command::files;
use pki_types::CertificateRevocationListDer;

/// Advice for CRLs that Dunlin cannot use.
const ADVICE: &str = "give one complete CRL of each issuer; `dunlin pki crl` makes one";

/// The CRLs in a file, each of which is usable.
pub(crate) fn of_file(path: &Path) -> Result<Vec<CertificateRevocationListDer<'static>>, Error> {
    let lists = files::revocation_lists(path)?;
    // Check each file separately, so that the error names it.
    Revocation::new(lists.clone()).map_err(|e| Error::failed(path.display(), reason(&e), ADVICE))?;
    Ok(lists)
}

/// The CRLs of all files together, without overdue ones.
pub(crate) fn together(lists: Vec<CertificateRevocationListDer<'static>>) -> Result<Revocation, Error> {
    let revocation = Revocation::new(lists).map_err(|e| Error::failed("--CRL", reason(&e), ADVICE))?;
    Ok(revocation.refuse_overdue())
}

/// The CRLs that a client or server checks.
pub(crate) struct RevocationLists {
    paths: Vec<PathBuf>,
    /// Whether to check the whole chain instead of only the peer's certificate.
    of_whole_chain: bool,
    /// CRLs from pipes, which can be read only once.
    from_pipes: HashMap<PathBuf, Vec<CertificateRevocationListDer<'static>>>,
}

impl RevocationLists {
    /// The CRLs in these files, which are not read yet. They apply to the peer's certificate or to its whole
    /// chain.
    pub(super) fn new(paths: Vec<PathBuf>, of_whole_chain: bool) -> Self {
        Self { paths, of_whole_chain, from_pipes: HashMap::new() }
    }

    /// Returns `trust` with the present CRLs.
    pub(super) fn read(&mut self, trust: Trust) -> Result<Trust, Error> {
        let mut lists = vec![];
        for path in &self.paths {
            let is_pipe = path.metadata().is_ok_and(|found| !found.is_file());
            if let Some(kept) = self.from_pipes.get(path).filter(|_| is_pipe) {
                lists.extend_from_slice(kept);
                continue;
            }
            let of_file = of_file(path)?;
            if is_pipe {
                self.from_pipes.insert(path.clone(), of_file.clone());
            }
            lists.extend(of_file);
        }
        let revocation = together(lists)?;
        let revocation = if self.of_whole_chain { revocation } else { revocation.leaf_only() };
        let x509 = trust.x509.map(|x509| x509.with_revocation(revocation)).transpose();
        let x509 = x509.map_err(|e| Error::usage("--CRL", reason(&e), "report it"))?;
        Ok(Trust { x509, raw_key: trust.raw_key })
    }
}
