//! `did:ott`, the method of the paper's public implementation, to interoperate with it. Its documents are
//! messages on a ledger.
//!
//! A DID names one message, so that a resolver never sees a later one: not even a deactivation. Use it for
//! interoperability alone.

use blake2::digest::Digest;
use blake2::{Blake2b, digest::consts::U32};
use der::pem;
use dunlin::crypto::{CryptoProvider, SigningKey};
use dunlin_identity::encoding::json;
use dunlin_identity::key::{self, KeyError, KeyType, PublicKey};
use dunlin_identity::{DID_CONTEXT, Did, DidDocument, DidError, DocumentError, MULTIKEY_CONTEXT};
use serde_json::{Value, json};

/// The longest document in a message, in bytes.
pub const MAX_OTT_DOCUMENT: usize = 3000;

/// Which messages contain a document.
const TAG: [u8; 32] = [
    0x3c, 0xab, 0x78, 0xb6, 0x02, 0x64, 0x47, 0xe9, 0x30, 0x26, 0xd4, 0x1f, 0xad, 0x68, 0x22, 0x27, 0x41,
    0xa4, 0x32, 0xba, 0xbe, 0x54, 0x83, 0xee, 0xab, 0x6b, 0x62, 0xce, 0xf0, 0x5c, 0x07, 0x91,
];

/// The padding that the public implementation appends to a message.
const PADDING: [u8; 32] = [0; 32];

/// Why a DID, message or document is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OttError {
    /// The DID is not `did:ott:`, 64 hexadecimal digits, a colon, and 64 more.
    #[error("did:ott: the DID is not an address and a message in hexadecimal")]
    Did,
    /// The message is malformed or too long.
    #[error("did:ott: malformed ledger message")]
    Message,
    /// The message has another tag than one with a document.
    #[error("did:ott: the ledger message contains no document")]
    Tag,
    /// The message belongs to another address.
    #[error("did:ott: the ledger message belongs to another address")]
    Address,
    /// The signature is wrong, or a key is.
    #[error("did:ott: {0}")]
    Key(#[from] KeyError),
    /// The document is refused.
    #[error("{0}")]
    Document(#[from] DocumentError),
    /// A member of the document is missing or malformed.
    #[error("did:ott: missing or malformed member {0:?} of the document")]
    Member(&'static str),
    /// The document belongs to another DID.
    #[error("did:ott: the document is that of another DID")]
    OtherDid,
    /// The document is longer than [`MAX_OTT_DOCUMENT`].
    #[error("did:ott: the document is longer than {MAX_OTT_DOCUMENT} bytes")]
    LongDocument,
}

/// A `did:ott`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OttDid {
    /// The address: BLAKE2b-256 over the key that signs messages and the anchor.
    pub address: [u8; 32],
    /// The ID of the message with the document, which the ledger gives.
    pub message: [u8; 32],
}

impl OttDid {
    /// Reads a DID. Its hexadecimal digits may be large or small.
    ///
    /// # Errors
    /// [`OttError::Did`].
    pub fn read(did: &Did) -> Result<Self, OttError> {
        let (address, message) = did.identifier().split_once(':').ok_or(OttError::Did)?;
        let bytes = |text| {
            let bytes = base16ct::mixed::decode_vec(text).ok().and_then(|bytes| bytes.try_into().ok());
            bytes.ok_or(OttError::Did)
        };
        if did.method() != "ott" {
            return Err(OttError::Did);
        }
        Ok(Self { address: bytes(address)?, message: bytes(message)? })
    }

    /// The DID without the message, as documents have it.
    pub fn base(&self) -> String {
        format!("did:ott:{}", base16ct::upper::encode_string(&self.address))
    }

    /// The DID.
    ///
    /// # Errors
    /// None that can happen: the form is right.
    pub fn did(&self) -> Result<Did, DidError> {
        format!("{}:{}", self.base(), base16ct::lower::encode_string(&self.message)).parse()
    }
}

fn blake2b(parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().fold(Blake2b::<U32>::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

/// A message on the ledger: a document, signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OttMessage {
    /// The key that signs the address's messages: Ed25519.
    key: [u8; 32],
    /// BLAKE2b-256 of the key that would revoke the DID.
    anchor: [u8; 32],
    signature: [u8; 64],
    document: Vec<u8>,
}

impl OttMessage {
    /// Reads and verifies the message at an address.
    ///
    /// # Errors
    /// [`OttError::Message`], [`OttError::Tag`], [`OttError::Address`], [`OttError::Key`].
    pub fn read(provider: &CryptoProvider, bytes: &[u8], address: &[u8; 32]) -> Result<Self, OttError> {
        let (tag, rest) = bytes.split_first_chunk::<32>().ok_or(OttError::Message)?;
        if *tag != TAG {
            return Err(OttError::Tag);
        }
        let (len, rest) = rest.split_first_chunk().ok_or(OttError::Message)?;
        let (key, rest) = rest.split_first_chunk().ok_or(OttError::Message)?;
        let (anchor, rest) = rest.split_first_chunk().ok_or(OttError::Message)?;
        let (signature, rest) = rest.split_first_chunk().ok_or(OttError::Message)?;
        let len = usize::from(u16::from_le_bytes(*len));
        if len > MAX_OTT_DOCUMENT {
            return Err(OttError::LongDocument);
        }
        let (document, padding) = rest.split_at_checked(len).ok_or(OttError::Message)?;
        if !padding.is_empty() && padding != PADDING {
            return Err(OttError::Message);
        }
        let message = Self { key: *key, anchor: *anchor, signature: *signature, document: document.to_vec() };
        if message.address() != *address {
            return Err(OttError::Address);
        }
        let public = ed25519(key)?;
        let scheme = KeyType::Ed25519.default_scheme();
        public.verify(provider, scheme, &message.signed()?, signature)?;
        Ok(message)
    }

    /// Reads the member `data` of the ledger's answer: the message in hexadecimal, twice. Verifies it as
    /// [`Self::read`].
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_data(provider: &CryptoProvider, data: &str, address: &[u8; 32]) -> Result<Self, OttError> {
        let decode = |text: &[u8]| base16ct::mixed::decode_vec(text).map_err(|_| OttError::Message);
        // The rest of the message has less than 256 bytes.
        if data.len() > 4 * (MAX_OTT_DOCUMENT + 256) {
            return Err(OttError::Message);
        }
        Self::read(provider, &decode(&decode(data.as_bytes())?)?, address)
    }

    /// Signs a document with an Ed25519 key. `revocation` is the key that would revoke the DID, Ed25519 too.
    ///
    /// # Errors
    /// [`OttError::LongDocument`], [`OttError::Key`].
    pub fn sign(
        provider: &CryptoProvider,
        signer: &dyn SigningKey,
        revocation: &PublicKey,
        document: &[u8],
    ) -> Result<Self, OttError> {
        let key = raw(&PublicKey::from_spki(signer.public_key())?)?;
        let anchor = blake2b(&[&raw(revocation)?]);
        let mut message = Self { key, anchor, signature: [0; 64], document: document.to_vec() };
        let signed = message.signed()?;
        let signature = key::sign(signer, provider, KeyType::Ed25519.default_scheme(), &signed)?;
        message.signature = signature.try_into().map_err(|_| KeyError::Signing)?;
        Ok(message)
    }

    /// The address of messages by these keys, both Ed25519.
    ///
    /// # Errors
    /// [`OttError::Key`].
    pub fn address_of(signer: &PublicKey, revocation: &PublicKey) -> Result<[u8; 32], OttError> {
        Ok(blake2b(&[&raw(signer)?, &blake2b(&[&raw(revocation)?])]))
    }

    /// The address of this message.
    pub fn address(&self) -> [u8; 32] {
        blake2b(&[&self.key, &self.anchor])
    }

    /// The document.
    pub fn document(&self) -> &[u8] {
        &self.document
    }

    /// The message for the ledger, with the public implementation's padding.
    ///
    /// # Errors
    /// [`OttError::LongDocument`].
    pub fn to_bytes(&self) -> Result<Vec<u8>, OttError> {
        let len = self.len()?;
        let parts = [&TAG, len.as_slice(), &self.key, &self.anchor, &self.signature, &self.document];
        Ok([parts.concat(), PADDING.to_vec()].concat())
    }

    fn len(&self) -> Result<[u8; 2], OttError> {
        let len = Some(self.document.len()).filter(|len| *len <= MAX_OTT_DOCUMENT);
        let len = len.and_then(|len| u16::try_from(len).ok()).ok_or(OttError::LongDocument)?;
        Ok(len.to_le_bytes())
    }

    fn signed(&self) -> Result<[u8; 32], OttError> {
        Ok(blake2b(&[&self.len()?, &self.key, &self.anchor, &self.document]))
    }
}

/// The Ed25519 key of 32 bytes, as a Multikey has it.
fn ed25519(raw: &[u8; 32]) -> Result<PublicKey, KeyError> {
    PublicKey::from_multikey(&key::base58btc(&[&[0xed, 1], raw.as_slice()].concat()))
}

fn raw(key: &PublicKey) -> Result<[u8; 32], KeyError> {
    let raw = key.spki().last_chunk().filter(|_| key.key_type() == KeyType::Ed25519);
    raw.copied().ok_or(KeyError::UnknownType)
}

/// The type that documents name for a key.
fn type_of(key: &PublicKey) -> Result<&'static str, KeyError> {
    match key.key_type() {
        KeyType::Ed25519 => Ok("Ed25519VerificationKey2023"),
        KeyType::P256 => Ok("EcdsaSecp256r1VerificationKey2023"),
        KeyType::Rsa => Ok("RsaVerificationKey2023"),
        KeyType::P384 | KeyType::MlDsa44 => Err(KeyError::UnknownType),
    }
}

/// The document of an address in the form that the public implementation writes. `created` is a time such as
/// `2023-01-01T00:00:00Z`.
///
/// # Errors
/// [`OttError::Key`] for a key on P-384; [`OttError::Member`] if `created` is not plain text.
pub fn document(
    address: &[u8; 32],
    created: &str,
    authentication: &PublicKey,
    assertion: &PublicKey,
) -> Result<String, OttError> {
    if !created.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-:.+".contains(&byte)) {
        return Err(OttError::Member("created"));
    }
    let id = OttDid { address: *address, message: [0; 32] }.base();
    let method = |number: u8, key: &PublicKey| {
        let pem = pem::encode_string("PUBLIC KEY", pem::LineEnding::LF, key.spki());
        let pem = pem.map_err(|_| KeyError::Spki)?.replace('\n', "\\n");
        let typ = type_of(key)?;
        Ok::<_, KeyError>(format!(
            "{{\n\t\t\"id\":\t\"{id}#keys-{number}\",\n\t\t\"type\":\t\"{typ}\",\n\t\t\"controller\":\t\"{id}\",\n\
             \t\t\"publicKeyPem\":\t\"{pem}\"\n\t}}"
        ))
    };
    let first = method(0, authentication)?;
    let second = method(1, assertion)?;
    Ok(format!(
        "{{\n\t\"@context\":\t\"{DID_CONTEXT}\",\n\t\"id\":\t\"{id}\",\n\t\"created\":\t\"{created}\",\n\
         \t\"authenticationMethod\":\t{first},\n\t\"assertionMethod\":\t{second}\n}}"
    ))
}

/// The document of a DID from its message, in the form of W3C: the keys `#keys-0` for authentication and
/// `#keys-1` for assertions.
///
/// # Errors
/// [`OttError::OtherDid`], [`OttError::Member`], [`OttError::Document`], [`OttError::Key`].
pub fn read_document(text: &[u8], did: &OttDid) -> Result<DidDocument, OttError> {
    let value = json::read_bounded(text, MAX_OTT_DOCUMENT).map_err(DocumentError::Json)?;
    let id = value.get("id").and_then(Value::as_str).ok_or(OttError::Member("id"))?;
    if !id.eq_ignore_ascii_case(&did.base()) {
        return Err(OttError::OtherDid);
    }
    let key = |name: &'static str| {
        let method = value.get(name).ok_or(OttError::Member(name))?;
        let text = |member| method.get(member).and_then(Value::as_str).ok_or(OttError::Member(member));
        // Another controller would speak for this DID.
        if !text("controller")?.eq_ignore_ascii_case(id) {
            return Err(OttError::Member("controller"));
        }
        let pem = text("publicKeyPem")?;
        let (label, der) = pem::decode_vec(pem.as_bytes()).map_err(|_| OttError::Member("publicKeyPem"))?;
        if label != "PUBLIC KEY" {
            return Err(OttError::Member("publicKeyPem"));
        }
        Ok(PublicKey::from_spki(&der)?)
    };
    let keys = [key("authenticationMethod")?, key("assertionMethod")?];
    let did = did.did().map_err(|_| OttError::Did)?;
    let method = |(number, key): (usize, &PublicKey)| {
        json!({
            "id": format!("{did}#keys-{number}"),
            "type": "Multikey",
            "controller": did.as_str(),
            "publicKeyMultibase": key.to_multikey(),
        })
    };
    let document = json!({
        "@context": [DID_CONTEXT, MULTIKEY_CONTEXT],
        "id": did.as_str(),
        "verificationMethod": keys.iter().enumerate().map(method).collect::<Vec<_>>(),
        "authentication": [format!("{did}#keys-0")],
        "assertionMethod": [format!("{did}#keys-1")],
    });
    Ok(DidDocument::from_value(document, &did)?)
}
