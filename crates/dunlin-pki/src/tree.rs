//! Makes a whole tree of certificates at once, for demonstrations, tests and measurements.

use crate::{
    AltName, Authority, CaSpec, Error, Form, Identity, KeyPair, KeyType, LeafSpec, Subject, Validity,
};

/// The parameters of a tree to be made.
#[derive(Clone, Debug)]
pub struct TreeSpec {
    /// The type of every key in it.
    pub key_type: KeyType,
    /// The form of every certificate in it.
    pub form: Form,
    /// The validity of every certificate in it.
    pub validity: Validity,
    /// The names of the server.
    pub server_names: Vec<AltName>,
    /// The name of the client.
    pub client: Subject,
}

impl TreeSpec {
    /// A tree in full form, valid for `days` days from now on. The server is called `localhost` and
    /// 127.0.0.1, the client `device-1`.
    ///
    /// # Errors
    /// [`Error::TooManyDays`].
    pub fn new(key_type: KeyType, days: u32) -> Result<Self, Error> {
        Ok(Self {
            key_type,
            form: Form::Full,
            validity: Validity::from_now_days(days)?,
            server_names: vec!["localhost".parse()?, "127.0.0.1".parse()?],
            client: Subject::common_name("device-1")?,
        })
    }
}

/// A root, an intermediate authority under it, and a server and a client under that.
#[derive(Debug)]
pub struct Tree {
    /// The trust anchor of both sides.
    pub root: Authority,
    /// The issuer of the server's and the client's certificate.
    pub intermediate: Authority,
    /// The server's identity.
    pub server: Identity,
    /// The client's identity.
    pub client: Identity,
}

impl Tree {
    /// Makes a tree with new keys.
    ///
    /// # Errors
    /// Those of [`Authority::root`] and [`Authority::issue`].
    pub fn generate(spec: &TreeSpec) -> Result<Self, Error> {
        let key = || KeyPair::generate(spec.key_type);
        let authority = |full: &str, lean: &str| {
            let name = if spec.form == Form::Full { full } else { lean };
            Ok(CaSpec { form: spec.form, ..CaSpec::new(Subject::common_name(name)?, spec.validity) })
        };
        let root = Authority::root(&authority("Dunlin root", "R")?, key()?)?;
        let intermediate = root.intermediate(&authority("Dunlin intermediate", "I")?, key()?)?;
        let mut server = LeafSpec::server(spec.server_names.iter().cloned(), spec.validity);
        let mut client = LeafSpec::client(spec.client.clone(), spec.validity);
        for leaf in [&mut server, &mut client] {
            leaf.form = spec.form;
            if spec.form == Form::Lean {
                // A purpose takes 21 bytes; without one the certificate serves for both.
                leaf.purposes.clear();
            }
        }
        let server = intermediate.issue(&server, key()?)?;
        let client = intermediate.issue(&client, key()?)?;
        Ok(Self { root, intermediate, server, client })
    }
}
