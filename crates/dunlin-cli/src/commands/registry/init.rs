//! `dunlin registry init`.

use std::io::Write;
use std::path::PathBuf;

use clap::Args as ClapArgs;
use dunlin_command::error::Error;
use dunlin_command::files::{self, Access, Existing};
use dunlin_pki::{KeyPair, KeyType};
use dunlin_registry::{Registry, Settings};

use super::{RegistryDirectory, failed};
use crate::did::key_of;

/// Make a registry with a new key and an empty log, in a new directory, and print its keys.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin registry init --origin registry.example/1 --out registry")]
pub(super) struct Init {
    /// The name of the registry, which its DIDs contain permanently: a URL without the scheme.
    #[arg(long, value_name = "ORIGIN")]
    origin: String,
    /// The directory, which is created.
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// Runs `dunlin registry init`.
pub(super) fn run(args: &Init, out: &mut dyn Write) -> Result<(), Error> {
    let place = RegistryDirectory::new(&args.out);
    let database = place.database();
    let key = place.key();
    let public = place.public();
    // Nothing is ever replaced: an empty log under an existing name would be a second history.
    files::check_new(&[&database, &key, &public], Existing::Keep)?;
    if args.origin.contains("://") {
        let why = "an origin has no scheme, and DIDs contain it permanently";
        return Err(Error::usage("--origin", why, "write it as in registry.example/1"));
    }
    let pair = KeyPair::generate(KeyType::Ed25519)?;
    let signer = key_of(&pair, &key, &place.provider)?;
    let settings = Settings::new(place.provider.clone(), args.origin.clone(), signer);
    let keys = settings.keys();
    let [log, witness] =
        keys.map_err(|error| Error::usage("--origin", error, "write it as in registry.example/1"))?;
    files::create_directory(&args.out)?;
    files::write(&key, pair.to_pem()?.as_bytes(), Access::Secret, Existing::Keep)?;
    let keys = format!(
        "# The registry {}: its keys as log and as witness of itself. Other witnesses may follow, and how many must sign.\n{}\n{}\n",
        args.origin, log, witness
    );
    files::write(&public, keys.as_bytes(), Access::Public, Existing::Keep)?;
    Registry::create(&database, &settings).map_err(|error| failed(&database, &error))?;
    write!(out, "{keys}")?;
    Ok(())
}
