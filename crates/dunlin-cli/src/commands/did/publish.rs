//! `dunlin did publish`, and the operations that other commands submit to a registry.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args as ClapArgs;
use dunlin::crypto::CryptoProvider;
use dunlin_command::error::Error;
use dunlin_identity::method::dunlin::{Operation, State};
use dunlin_identity::transparency::StapleError;
use dunlin_registry::client::{ClientError, RegistryClient};
use dunlin_setup::did::{bad_operations, operations};

use crate::did::file;
use crate::registry::{AccessOptions, block_on, failed};
use crate::tls::lists;

/// Bring the operations of a did:dunlin to its registry, as far as the registry does not have them yet.
///
/// `create`, `update` and `deactivate` do this themselves if they get the URL of the registry.
#[derive(ClapArgs)]
#[command(after_help = "\
Examples:
  dunlin did publish device --registry https://registry.example --registry-key registry.pub")]
pub(super) struct Publish {
    /// The directory of the DID.
    dir: PathBuf,
    /// The registry.
    #[arg(long, value_name = "URL", requires = "registry_key")]
    registry: String,
    #[command(flatten)]
    access: AccessOptions,
}

/// Runs `dunlin did publish`.
pub(super) fn run(args: &Publish, out: &mut dyn Write) -> Result<(), Error> {
    let client = args.access.client(&args.registry)?;
    let state = publish(&args.dir, &client, &lists::provider())?;
    let ended = if state.is_active() { "" } else { ", deactivated" };
    writeln!(out, "{}: version {}{ended}", state.did(), state.sequence())?;
    Ok(())
}

/// Submits the operations that the registry does not have yet, and returns the state of the DID.
pub(super) fn publish(
    directory: &Path,
    client: &RegistryClient,
    provider: &CryptoProvider,
) -> Result<State, Error> {
    let files = file(directory);
    let Some(operations) = operations(&files)? else {
        let why = "its DID is no did:dunlin, and in no registry";
        return Err(Error::failed(directory.display(), why, "leave --registry out"));
    };
    let state = State::replay(provider, &operations);
    let state = state.map_err(|error| bad_operations(&files, &error))?;
    block_on(submit(&operations, &state, client, provider))??;
    Ok(state)
}

async fn submit(
    operations: &[Operation],
    state: &State,
    client: &RegistryClient,
    provider: &CryptoProvider,
) -> Result<(), Error> {
    let published = match client.resolve(state.did()).await {
        Ok((_, resolved)) => {
            let count = usize::try_from(resolved.sequence).unwrap_or(usize::MAX).saturating_add(1);
            // The registry's state is one of the states in the directory, or another holder of the key has
            // changed the DID.
            let same = operations.get(..count).and_then(|until| State::replay(provider, until).ok());
            if same.is_none_or(|same| *same.document() != resolved.document) {
                let why = format!("{}: the registry has other operations of {}", client.url(), state.did());
                let advice =
                    "restore the newest directory of the DID; if you alone have its keys, they are stolen";
                return Err(Error::failed("registry", why, advice));
            }
            count
        }
        Err(ClientError::Absent { .. }) => 0,
        // Nothing can follow.
        Err(ClientError::Proof { error: StapleError::Deactivated(_), .. }) if !state.is_active() => {
            return Ok(());
        }
        Err(error) => return Err(failed(&error)),
    };
    for operation in operations.iter().skip(published) {
        client.submit(operation).await.map_err(|error| failed(&error))?;
    }
    Ok(())
}
