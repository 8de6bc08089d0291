//! Files of frozen associations: any number of them, sealed piece by piece, so that neither side needs a
//! second copy in memory.
//!
//! ```text
//! magic[7] version[1] id[16] tag[16]             the beginning
//! 1 length[4] ciphertext[length] tag[16]         associations, each after its length of 4 bytes; repeated
//! 2 ciphertext[8] tag[16]                        the end: the number of associations
//! ```

use std::fmt;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dunlin::crypto::{CryptoProvider, MAX_KEY_LEN, MAX_TAG_LEN};
use dunlin::error::Misuse;
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

use super::seal::{FileKeys, Kind, PieceSealer};
use super::{FileId, FrozenError, FrozenIds, IdsFault, MAX_ASSOCIATION};
use crate::cache::{key_file, sealing_aead};
use crate::files;

/// The first bytes of a file. The version follows.
const MAGIC: &[u8; 7] = b"dunlnfa";
const VERSION: u8 = b'1';

/// The length of a piece from which it is written, in bytes: long enough that tags and calls of the system
/// cost nothing.
const PIECE: usize = 128 << 10;

/// The number of files that are set aside beside one file. A server that is started again and again must not
/// fill its directory.
const MAX_ASIDE: usize = 100;

/// The length of a length.
const LENGTH: usize = 4;

/// The longest piece: one that was almost long enough, and one more association.
const MAX_PIECE: usize = PIECE + LENGTH + MAX_ASSOCIATION;

/// A file of frozen associations, which may be missing, and the key that seals it.
///
/// A user who can write the file without its key can only destroy it. A user who has the file and the key can
/// read the traffic of its associations, and speak for both sides.
pub struct FrozenFile {
    path: PathBuf,
    keys: FileKeys,
}

impl FrozenFile {
    /// The file at `path`, sealed with this key, which must be random and must not be kept with the file.
    ///
    /// # Errors
    /// The provider has no AEAD with a key of 32 bytes and a tag of 16.
    pub fn new(
        provider: &Arc<CryptoProvider>,
        path: impl AsRef<Path>,
        key: &Zeroizing<[u8; MAX_KEY_LEN]>,
    ) -> Result<Self, FrozenError> {
        if sealing_aead(provider).is_none() {
            let why = "no AEAD to seal frozen associations with".into();
            return Err(FrozenError::Provider(Misuse::Config(why).into()));
        }
        let path = files::behind_links(path.as_ref());
        Ok(Self { path, keys: FileKeys::new(provider, key) })
    }

    /// The same with the key in a file, which has 32 random bytes and mode 0600. A missing key file is
    /// created, unless `path` exists: no new key can open that file.
    ///
    /// # Errors
    /// The errors of [`Self::new`]; the key file cannot be read or created, belongs to another user or is
    /// open to one, is a symbolic link, or is missing although `path` exists.
    pub fn open(
        provider: &Arc<CryptoProvider>,
        path: impl AsRef<Path>,
        key: &Path,
    ) -> Result<Self, FrozenError> {
        let is_first = fs::symlink_metadata(path.as_ref()).is_err();
        let opened = key_file::open(key, provider, is_first);
        let (key, _) = opened.map_err(|fault| FrozenError::Key { file: key.to_owned(), fault })?;
        Self::new(provider, path, &key)
    }

    /// Adds a new ID to the store and takes it again. A server calls this when it starts, because a store
    /// that fails when the server stops costs all associations.
    ///
    /// # Errors
    /// The store does not answer, cannot be changed or does not keep the ID; or the provider failed.
    pub fn try_store(&self, ids: &dyn FrozenIds) -> Result<(), FrozenError> {
        let id = self.keys.id().map_err(crypto)?;
        ids.put(&id)?;
        if ids.take(&id)? {
            return Ok(());
        }
        Err(IdsFault { store: format!("{ids:?}"), why: "the store does not keep IDs".to_owned() }.into())
    }

    /// Renames the file, so that the next one takes its place, and returns its new path: `.refused` is
    /// appended, and a number if that file exists. `None` if there is no file.
    ///
    /// # Errors
    /// The file cannot be renamed.
    pub fn set_aside(&self) -> Result<Option<PathBuf>, FrozenError> {
        set_aside(&self.path).map_err(|error| unwritable(&self.path, &error))
    }

    /// Begins a new file. Its ID goes into the store at once, so that no association is frozen that cannot be
    /// thawed. The file itself appears when it is complete ([`FrozenWriter::finish`]). A writer that is
    /// dropped before takes its ID back. After a crash the ID stays in the store, and may be deleted there
    /// once no file has it.
    ///
    /// # Errors
    /// The store does not answer, the file cannot be written, or the provider failed.
    pub fn create<'a>(&self, ids: &'a dyn FrozenIds) -> Result<FrozenWriter<'a>, FrozenError> {
        let id = self.keys.id().map_err(crypto)?;
        let mut sealer = self.keys.sealer(&id).map_err(crypto)?;
        let begin = sealer.seal(Kind::Begin, &mut []).map_err(crypto)?;
        let begun = tempfile::Builder::new()
            .prefix(".dunlin-")
            .permissions(Permissions::from_mode(0o600))
            .tempfile_in(files::directory_of(&self.path))
            // Without the name of the temporary file.
            .map_err(|error| io::Error::from(error.kind()))
            .and_then(|mut file| {
                file.write_all(&[&MAGIC[..], &[VERSION], &id.0, &begin].concat())?;
                Ok(file)
            });
        let file = begun.map_err(|error| self.fails(&error))?;
        ids.put(&id)?;
        let id = PendingId { ids, id, has_file: false };
        // The buffer never moves, so it leaves no unwiped copy behind.
        let piece = Zeroizing::new(Vec::with_capacity(MAX_PIECE));
        Ok(FrozenWriter {
            path: self.path.clone(),
            file,
            sealer,
            piece,
            associations: 0,
            has_failed: false,
            id,
        })
    }

    /// Thaws the file: calls `each` with the bytes of every association, in order, then takes the file's ID
    /// from the store, removes the file, and returns the results. `None` if there is no file.
    ///
    /// `each` makes a connection of the bytes ([`dunlin::DtlsConnection::thaw_server`]), and must not use it:
    /// this function drops the results unless the whole file is authentic and the ID was in the store. So
    /// nothing is ever sent twice. The ID stays in the store if `each` fails for all associations: the
    /// caller's settings may be wrong, and can be corrected.
    ///
    /// # Errors
    /// The file cannot be read, belongs to another user or can be written by one, is not a file of frozen
    /// associations, was sealed with another key, was changed or cut, or was thawed before; `each` failed for
    /// all associations; or the store does not answer. Nothing was thawed, and the file stays.
    pub fn thaw<T, E: fmt::Display>(
        &self,
        ids: &dyn FrozenIds,
        each: impl FnMut(&[u8]) -> Result<T, E>,
    ) -> Result<Option<Vec<Result<T, E>>>, FrozenError> {
        self.thaw_unless(ids, each, |_| false)
    }

    /// As [`Self::thaw`]. If `is_fault` holds for an error of `each`, it says nothing about the association:
    /// the caller could not look at its key, for example. Then nothing is thawed, and the file stays.
    ///
    /// # Errors
    /// As [`Self::thaw`], and [`FrozenError::NotNow`].
    pub fn thaw_unless<T, E: fmt::Display>(
        &self,
        ids: &dyn FrozenIds,
        mut each: impl FnMut(&[u8]) -> Result<T, E>,
        is_fault: impl Fn(&E) -> bool,
    ) -> Result<Option<Vec<Result<T, E>>>, FrozenError> {
        let file = match files::open_own(OpenOptions::new().read(true), &self.path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened.map_err(|error| self.fails(&error))?,
        };
        let found = file.metadata().map_err(|error| self.fails(&error))?;
        let mut pieces = Pieces::begin(self, BufReader::with_capacity(PIECE, file))?;
        let mut thawed = Vec::new();
        while let Some(mut piece) = pieces.next()? {
            while let Some((length, rest)) = piece.split_first_chunk::<LENGTH>() {
                let length = u32::from_be_bytes(*length) as usize;
                let (association, rest) =
                    rest.split_at_checked(length).ok_or_else(|| FrozenError::Damaged(self.path.clone()))?;
                let one = each(association);
                if let Err(fault) = one.as_ref()
                    && is_fault(fault)
                {
                    return Err(FrozenError::NotNow { file: self.path.clone(), why: fault.to_string() });
                }
                thawed.push(one);
                piece = rest;
            }
            if !piece.is_empty() {
                return Err(FrozenError::Damaged(self.path.clone()));
            }
        }
        let id = pieces.end(thawed.len())?;
        if let (Some(Err(error)), false) = (thawed.first(), thawed.iter().any(Result::is_ok)) {
            let file = self.path.clone();
            let why = error.to_string();
            return Err(FrozenError::NoneThawed { file, associations: thawed.len(), why });
        }
        if !ids.take(&id)? {
            return Err(FrozenError::Spent { file: self.path.clone(), id });
        }
        // Another process may have written its own file meanwhile. A thawed file that stays can do no harm.
        let is_found = |at: &fs::Metadata| (at.dev(), at.ino()) == (found.dev(), found.ino());
        if fs::symlink_metadata(&self.path).is_ok_and(|at| is_found(&at)) {
            let _ = fs::remove_file(&self.path);
        }
        Ok(Some(thawed))
    }

    fn fails(&self, error: &io::Error) -> FrozenError {
        match error.kind() {
            ErrorKind::UnexpectedEof => FrozenError::Cut(self.path.clone()),
            _ => FrozenError::File { file: self.path.clone(), why: files::why(error) },
        }
    }
}

impl fmt::Debug for FrozenFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FrozenFile").field("path", &self.path).finish_non_exhaustive()
    }
}

fn crypto(error: dunlin::crypto::CryptoError) -> FrozenError {
    FrozenError::Provider(error.into())
}

/// The pieces of a file that is being thawed.
struct Pieces<'a> {
    of: &'a FrozenFile,
    file: BufReader<File>,
    id: FileId,
    sealer: PieceSealer,
    piece: Zeroizing<Vec<u8>>,
    /// The number of associations, once the end was read.
    associations: Option<u64>,
}

impl<'a> Pieces<'a> {
    /// Reads the beginning.
    fn begin(of: &'a FrozenFile, mut file: BufReader<File>) -> Result<Self, FrozenError> {
        let mut magic = [0; 7];
        let mut version = [0];
        let mut id = [0; 16];
        let mut tag = [0; MAX_TAG_LEN];
        let mut read = |bytes: &mut [u8]| file.read_exact(bytes).map_err(|error| of.fails(&error));
        read(&mut magic)?;
        if magic != *MAGIC {
            return Err(FrozenError::Foreign(of.path.clone()));
        }
        read(&mut version)?;
        if version != [VERSION] {
            return Err(FrozenError::OtherVersion(of.path.clone()));
        }
        read(&mut id)?;
        read(&mut tag)?;
        let id = FileId(id);
        let mut sealer = of.keys.sealer(&id).map_err(crypto)?;
        let opened = sealer.open(Kind::Begin, &mut [], &tag);
        opened.map_err(|_| FrozenError::OtherKey(of.path.clone()))?;
        let piece = Zeroizing::new(Vec::with_capacity(MAX_PIECE));
        Ok(Self { of, file, id, sealer, piece, associations: None })
    }

    fn damaged(&self) -> FrozenError {
        FrozenError::Damaged(self.of.path.clone())
    }

    fn read<const N: usize>(&mut self) -> Result<[u8; N], FrozenError> {
        let mut bytes = [0; N];
        self.file.read_exact(&mut bytes).map_err(|error| self.of.fails(&error))?;
        Ok(bytes)
    }

    /// Opens the next piece with associations; `None` at the end.
    fn next(&mut self) -> Result<Option<&[u8]>, FrozenError> {
        match self.read()? {
            [1] => {
                let length = u32::from_be_bytes(self.read()?) as usize;
                if length > MAX_PIECE {
                    return Err(self.damaged());
                }
                self.open(Kind::Some, length)?;
                Ok(Some(&self.piece))
            }
            [2] => {
                self.open(Kind::End, 8)?;
                self.associations = self.piece.first_chunk().map(|number| u64::from_be_bytes(*number));
                Ok(None)
            }
            _ => Err(self.damaged()),
        }
    }

    fn open(&mut self, kind: Kind, length: usize) -> Result<(), FrozenError> {
        self.piece.resize(length, 0);
        self.file.read_exact(&mut self.piece).map_err(|error| self.of.fails(&error))?;
        let tag: [u8; MAX_TAG_LEN] = self.read()?;
        self.sealer.open(kind, &mut self.piece, &tag).map_err(|_| self.damaged())
    }

    /// Checks that this was the end, after so many associations, and returns the ID.
    fn end(mut self, thawed: usize) -> Result<FileId, FrozenError> {
        let more = self.file.read(&mut [0]).map_err(|error| self.of.fails(&error))?;
        if more == 0 && self.associations == Some(thawed as u64) { Ok(self.id) } else { Err(self.damaged()) }
    }
}

/// The ID of a file that is not complete.
struct PendingId<'a> {
    ids: &'a dyn FrozenIds,
    id: FileId,
    has_file: bool,
}

impl Drop for PendingId<'_> {
    fn drop(&mut self) {
        if !self.has_file {
            // An ID that stays does no harm: no file has it.
            let _ = self.ids.take(&self.id);
        }
    }
}

/// Writes frozen associations. Dropping it without [`Self::finish`] leaves neither a file nor an ID behind.
pub struct FrozenWriter<'a> {
    path: PathBuf,
    file: NamedTempFile,
    sealer: PieceSealer,
    /// Associations that are not sealed yet.
    piece: Zeroizing<Vec<u8>>,
    associations: u64,
    /// Whether a piece could not be written.
    has_failed: bool,
    id: PendingId<'a>,
}

impl FrozenWriter<'_> {
    /// Adds a frozen association. It is sealed and written together with others.
    ///
    /// # Errors
    /// It is longer than [`MAX_ASSOCIATION`], which leaves the file unchanged; the file cannot be written; or
    /// the provider failed.
    pub fn push(&mut self, association: &[u8]) -> Result<(), FrozenError> {
        self.check()?;
        let length =
            if association.len() <= MAX_ASSOCIATION { u32::try_from(association.len()).ok() } else { None };
        let length = length.ok_or(FrozenError::TooLong(association.len()))?;
        self.piece.extend_from_slice(&length.to_be_bytes());
        self.piece.extend_from_slice(association);
        self.associations += 1;
        if self.piece.len() >= PIECE { self.seal() } else { Ok(()) }
    }

    /// The number of associations so far.
    pub const fn associations(&self) -> u64 {
        self.associations
    }

    /// Completes the file and gives it its name. It then is on the disk, with mode 0600. It replaces no other
    /// file: an existing one was not thawed, and is set aside as [`FrozenFile::set_aside`] does.
    ///
    /// # Errors
    /// The file cannot be written, an existing one cannot be renamed, or the provider failed; or
    /// [`Self::push`] has failed for one of these reasons before.
    pub fn finish(mut self) -> Result<Written, FrozenError> {
        self.check()?;
        if !self.piece.is_empty() {
            self.seal()?;
        }
        let mut number = self.associations.to_be_bytes();
        let tag = self.sealer.seal(Kind::End, &mut number).map_err(crypto)?;
        let Self { path, mut file, associations, mut id, .. } = self;
        let written = file
            .write_all(&[&[Kind::End as u8][..], &number, &tag].concat())
            .and_then(|()| file.as_file().sync_all())
            .and_then(|()| set_aside(&path))
            .and_then(|aside| {
                file.persist_noclobber(&path).map_err(|error| error.error)?;
                id.has_file = true;
                // The directory holds the name, so it has to reach the disk, too.
                File::open(files::directory_of(&path))?.sync_all()?;
                Ok(aside)
            });
        let aside = written.map_err(|error| unwritable(&path, &error))?;
        Ok(Written { associations, aside })
    }

    /// Checks that no piece is missing.
    fn check(&self) -> Result<(), FrozenError> {
        if self.has_failed {
            Err(unwritable(&self.path, &io::Error::other("a part of it was not written")))
        } else {
            Ok(())
        }
    }

    /// Seals the waiting associations and writes them.
    fn seal(&mut self) -> Result<(), FrozenError> {
        // After an error, neither the piece nor the file is whole.
        self.has_failed = true;
        let length = (self.piece.len() as u32).to_be_bytes();
        let tag = self.sealer.seal(Kind::Some, &mut self.piece).map_err(crypto)?;
        let parts: [&[u8]; 4] = [&[Kind::Some as u8], &length, &self.piece, &tag];
        let written = parts.iter().try_for_each(|part| self.file.write_all(part));
        written.map_err(|error| unwritable(&self.path, &error))?;
        self.piece.clear();
        self.has_failed = false;
        Ok(())
    }
}

/// A complete file of frozen associations.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The number of associations.
    pub associations: u64,
    /// The new path of the file that had this name before, and that this process has not thawed.
    pub aside: Option<PathBuf>,
}

/// Renames the file at `path` if there is one, without replacing another one.
fn set_aside(path: &Path) -> io::Result<Option<PathBuf>> {
    let first = files::beside(path, ".refused");
    let mut asides = std::iter::once(first.clone())
        .chain((2..=MAX_ASIDE).map(|n| files::beside(&first, &format!(".{n}"))));
    let is_free =
        |aside: &PathBuf| fs::symlink_metadata(aside).is_err_and(|error| error.kind() == ErrorKind::NotFound);
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        found => found?,
    };
    let why = "too many files were set aside beside it: remove the ones that end in .refused and a number";
    let aside = asides.find(is_free).ok_or_else(|| io::Error::other(why))?;
    fs::rename(path, &aside)?;
    Ok(Some(aside))
}

fn unwritable(path: &Path, error: &io::Error) -> FrozenError {
    FrozenError::File { file: path.to_owned(), why: files::why(error) }
}

impl fmt::Debug for FrozenWriter<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, associations, .. } = self;
        let mut text = f.debug_struct("FrozenWriter");
        text.field("path", path).field("associations", associations).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frozen::DirectoryIds;

    #[test]
    fn a_writer_that_has_failed_completes_no_file() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        let ids = DirectoryIds::open(place.path().join("ids")).unwrap();
        let file = FrozenFile::new(&dunlin_tests::awslc(), &path, &Zeroizing::new([7; 32])).unwrap();
        let mut writer = file.create(&ids).unwrap();
        let (whole, at) = writer.file.into_parts();
        writer.file = NamedTempFile::from_parts(File::open(&at).unwrap(), at);
        writer.push(&vec![1; PIECE]).unwrap_err();
        // The disk has room again.
        let (_, at) = writer.file.into_parts();
        writer.file = NamedTempFile::from_parts(whole, at);
        writer.push(b"later").unwrap_err();
        writer.finish().unwrap_err();
        assert!(!path.exists());
    }
}
